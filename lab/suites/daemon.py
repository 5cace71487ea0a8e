"""Starts of a daemon and of its processes: time, CPU time, and memory of a further worker."""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab import ROOT
from lab.campaigns.memory import proportional
from lab.report import Report
from lab.system.processes import family
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.tokens import TokenizerBlob, Vocabulary
from pyaici.toolchain import build_controller

_TICK = os.sysconf("SC_CLK_TCK")
_ROUNDS, _OWNERS, _MODULES = 9, 4, 8
_PATIENCE = 120.0
_VOCABULARY = Vocabulary(
    tokens=[b"", *(bytes([i]) for i in range(1, 256))],
    special_names={0: "<end>"},
    eos=(0,),
    vocab_size=256,
    name="bytes",
    tokenizer=TokenizerBlob("longest"),
)


def run(report: Report) -> None:
    """Reports medians, with the CPU time of all processes of a daemon together."""
    found: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        steady = build_controller(ROOT / "lab" / "guests" / "steady.c", Path(folder) / "steady.wasm").path
        for number in range(1 if report.quick else _ROUNDS):
            _starts(found, Path(folder, str(number)))
            _replacement(found)
            _owners(found, steady)
    for name, values in found.items():
        unit = "KiB" if name.startswith("memory") else "ms"
        report.samples(name, values, unit)
        report.figure(name, statistics.median(values), unit)


def _starts(found: dict[str, list[float]], store: Path) -> None:
    """Measures from the start of a daemon until it is ready, and uploads of new modules."""
    cpu, memory = {}, {}
    for workers in (1, 3):
        started = time.perf_counter()
        with Daemon(workers=workers, store=store) as daemon:
            took = (time.perf_counter() - started) * 1e3
            cpu[workers] = _cpu_ms(daemon.pid)
            memory[workers] = sum(map(proportional, family(daemon.pid))) / 1024
            if workers == 1:
                found["start.daemon_ms"].append(took)
                found["start.daemon_cpu_ms"].append(cpu[workers])
                with Runtime(daemon.socket_path) as runtime, _measured(found, "start.compiler", daemon.pid):
                    for number in range(_MODULES):
                        runtime.upload(_module(number))
    found["start.further_worker_cpu_ms"].append((cpu[3] - cpu[1]) / 2)
    found["memory.further_worker_kib"].append((memory[3] - memory[1]) / 2)


def _replacement(found: dict[str, list[float]]) -> None:
    """Measures from the SIGKILL of a worker until its successor answers."""
    with Runtime(workers=1) as runtime:
        health = runtime.health()
        (dead,) = health["workers"]
        with _measured(found, "start.replacement", health["pid"], 1):
            os.kill(dead["pid"], signal.SIGKILL)
            end = time.monotonic() + _PATIENCE
            while True:
                (worker,) = runtime.health()["workers"]
                if worker["generation"] != dead["generation"] and "error" not in worker:
                    break
                assert time.monotonic() < end, worker


def _owners(found: dict[str, list[float]], module: Path) -> None:
    """Measures the first request of owners who have no worker yet, with a worker for each owner."""
    with (
        Daemon(workers=_OWNERS + 1, options=["--isolate-owners"]) as daemon,
        Runtime(daemon.socket_path) as runtime,
    ):
        runtime.register(_VOCABULARY)
        uploaded = runtime.upload(module).id
        runtime.instantiate(uploaded, "", (1,))
        with _measured(found, "start.owner", daemon.pid, _OWNERS):
            for number in range(_OWNERS):
                runtime.instantiate(uploaded, "", (1,), owner=f"owner {number}")


@contextmanager
def _measured(found: dict[str, list[float]], name: str, daemon: int, count: int = _MODULES) -> Iterator[None]:
    """Measures the milliseconds of each of `count` actions, by the clock and of CPU time."""
    before, started = _cpu_ms(daemon), time.perf_counter()
    yield
    found[f"{name}_ms"].append((time.perf_counter() - started) * 1e3 / count)
    found[f"{name}_cpu_ms"].append((_cpu_ms(daemon) - before) / count)


def _cpu_ms(pid: int) -> float:
    """Returns the CPU time of a process and its descendants, also of those that have ended."""
    ticks = 0
    for member in family(pid):
        with contextlib.suppress(OSError):  # it has ended
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks * 1e3 / _TICK


def _module(number: int) -> bytes:
    """Returns a small module that no other number gives: a custom section distinguishes it."""
    from wasmtime import wat2wasm

    text = """(module (memory (export "memory") 1) (func (export "aici_abi_v1"))
      (func (export "aici_arg") (result i32) (i32.const 16))
      (func (export "aici_mid_process") (result i32) (i32.const 42)))"""
    name = b"number"
    section = bytes([len(name)]) + name + bytes([number])
    return bytes(wat2wasm(text)) + bytes([0, len(section)]) + section
