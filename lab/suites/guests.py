"""Guests inside one process: calls, fibers, clones, snapshots (`aicirt.wasm` alone)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from wasmtime import wat2wasm

from aicirt.contract.abi import FuncType
from aicirt.wasm import Export, Fiber, HostFunction, Instance, Linker, Program, Snapshot, Ticker, WasmEngine
from aicirt.wasm.memory import PAGE
from aicirt.wasm.snapshot import fork, start_from, take_snapshot
from lab.measurement.timing import alternate, summarise
from lab.report import Report

#: memory of the guest in MiB -> upper limit of a fork, us
FORKS = {1: 100.0, 4: 130.0, 16: 250.0}
_CHANGED_PAGES = (64 << 10) // PAGE
_ROUNDS = 300
#: calls per sample, where a call takes about a microsecond
_BATCH = 200

_WAT = """(module (import "bench" "nothing" (func $nothing (param i32 i32) (result i32)))
  (memory (export "memory") {pages}) (global $stack (mut i32) (i32.const 65536))
  (func (export "aici_abi_v1")) (func (export "aici_arg") (result i32) (i32.const 16))
  (func (export "aici_mid_process") (result i32) (i32.store (i32.const 128) (i32.const 1)) (i32.const 0))
  (func (export "aici_post_process") (result i32) (call $nothing (i32.const 1) (i32.const 2))))"""


def run(report: Report) -> None:
    """Reports medians. Forks and starts are timed without closing the guests."""
    engine = WasmEngine()
    ticker = Ticker(engine)
    nothing = HostFunction("bench", "nothing", FuncType(("i32", "i32"), ("i32",)), lambda _guest, _a, _b: 0)
    linker = Linker(engine, [nothing])
    _calls(report, linker, ticker)
    clones(report, linker)
    linker.close()
    ticker.close()
    engine.close()


def _calls(report: Report, linker: Linker, ticker: Ticker) -> None:
    program = _program(linker, 1)
    guest = Instance(program)

    def arm() -> None:
        ticker.arm()
        ticker.disarm()

    samples = alternate(
        {
            "call": _batched(lambda: guest.call(Export.MID)),
            "call_with_host_function": _batched(lambda: guest.call(Export.POST)),
            "fiber": _batched(lambda: Fiber(guest, Export.MID).run()),
            "read_64_bytes": _batched(lambda: guest.read(128, 64)),
            "arm_and_disarm": _batched(arm),
        },
        _ROUNDS,
    )
    _add(report, "guests", samples, {})
    guest.close()
    program.close()


def clones(report: Report, linker: Linker, prefix: str = "guests") -> None:
    """Measures forks of guests with 64 KiB changed since the base, in one piece and in scattered pages."""
    forks: dict[str, Callable[[], float]] = {}
    starts: dict[str, Callable[[], float]] = {}
    snapshots: dict[str, Callable[[], float]] = {}
    targets = {"next_child": 60.0, "start": 100.0}
    opened: list[Instance | Program] = []
    for mib, target in FORKS.items():
        program = _program(linker, mib * 16)
        for layout, stride in (("", 1), (".scattered", (mib << 20) // PAGE // _CHANGED_PAGES)):
            base = Instance(program)
            for at in range(0, base.size, PAGE):
                base.view[at] = 1
            snapshot = take_snapshot(base)
            guest = start_from(snapshot)
            for page in range(_CHANGED_PAGES):
                guest.view[page * stride * PAGE] = 2
            targets[f"fork.{mib}mb{layout}"] = target
            forks[f"fork.{mib}mb{layout}"] = partial(_timed, partial(fork, guest, 1))
            starts[f"next_child{layout}"] = partial(_next_child, guest)  # keeps the largest guest
            opened += [base, guest]
        starts["start"] = partial(_timed, partial(_start, snapshot))
        snapshots[f"snapshot.{mib}mb"] = partial(_timed_snapshot, base)
        opened.append(program)
    # in separate groups, since a snapshot of 16 MiB evicts the processor's caches
    for group, rounds in ((forks, _ROUNDS), (starts, _ROUNDS), (snapshots, 50)):
        _add(report, prefix, alternate(group, rounds), targets)
    for item in opened:
        item.close()


def _program(linker: Linker, pages: int) -> Program:
    return Program.compile(linker, bytes(wat2wasm(_WAT.format(pages=pages))))


def _batched(call: Callable[[], object]) -> Callable[[], float]:
    """Returns a function that measures the microseconds of one call, as the mean of many."""

    def sample() -> float:
        start = time.perf_counter()
        for _ in range(_BATCH):
            call()
        return (time.perf_counter() - start) / _BATCH * 1e6

    return sample


def _timed(make: Callable[[], Iterable[Instance]]) -> float:
    """Returns the microseconds that making guests takes, the median of five turns. Closes the guests.

    A median, since the garbage collector runs between two samples and leaves cold caches behind.
    """
    turns = []
    for _ in range(5):
        start = time.perf_counter()
        guests = make()
        turns.append(time.perf_counter() - start)
        for guest in guests:
            guest.close()
    return summarise(turns).median * 1e6


def _start(snapshot: Snapshot) -> list[Instance]:
    return [start_from(snapshot)]


def _next_child(guest: Instance) -> float:
    """Returns the microseconds that each child after the first adds."""
    return (_timed(partial(fork, guest, 5)) - _timed(partial(fork, guest, 1))) / 4


def _timed_snapshot(guest: Instance) -> float:
    start = time.perf_counter()
    snapshot = take_snapshot(guest)
    taken = time.perf_counter() - start
    del snapshot
    return taken * 1e6


def _add(report: Report, prefix: str, samples: dict[str, list[float]], targets: dict[str, float]) -> None:
    for name, values in samples.items():
        report.samples(f"{prefix}.{name}", values, "us")
        report.figure(f"{prefix}.{name}_us", summarise(values).median, "us", target=targets.get(name))
