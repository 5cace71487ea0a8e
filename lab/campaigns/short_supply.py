"""Helpers for the cases of the campaign `scarcity`: they make resources scarce and check the effects."""

from __future__ import annotations

import errno
import json
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aicirt.contract.errors import RuntimeFailure, WorkerDiedError
from lab import ROOT
from lab.campaigns.ledger import make_vocabulary
from lab.campaigns.load import DENSE_ROWS, Load
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime

VOCABULARY = make_vocabulary(300, 0)
_ANSWERS = 300


def start(**options: Any) -> Runtime:
    """Returns a runtime with one worker and room for the rows of a load."""
    return Runtime(workers=1, num_dense=DENSE_ROWS, **options)


def connect(daemon: Daemon, wasm: bytes, num_rows: int = 256) -> Load:
    runtime = Runtime(daemon.socket_path, num_rows=num_rows, num_dense=DENSE_ROWS)
    try:
        runtime.register(VOCABULARY)
        return load_on(runtime, wasm)
    except BaseException:
        runtime.close()
        raise


def load_on(runtime: Runtime, wasm: bytes) -> Load:
    load = Load(runtime, runtime.upload(wasm).id, VOCABULARY, 4, random.Random(5))
    runtime.free([runtime.instantiate(load.module, "1 0", [1])])  # attaches
    return load


def goes_on(load: Load) -> None:
    """Checks that correct answers still come, and no errors."""
    goal = load.done["answers"] + _ANSWERS
    while load.done["answers"] < goal:
        load.step()
        assert not load.wrong and not load.losses, (load.wrong, load.losses)


def until_refused(load: Load) -> None:
    """Starts sequences until the supervisor has noticed that the worker is dead; raises that error."""
    for _ in range(200):
        try:
            load.runtime.free([load.runtime.instantiate(load.module, "1 0", [1])])
        except WorkerDiedError as error:
            if "has ended" not in error.message:
                raise
        time.sleep(0.02)


@contextmanager
def refused(pattern: str) -> Iterator[None]:
    """Checks that the block raises a typed error with a message that matches `pattern`."""
    try:
        yield
    except RuntimeFailure as error:
        report("refused", error)
        assert re.search(pattern, error.message, re.DOTALL), f"{error.message!r} does not match {pattern!r}"
    else:
        raise AssertionError(f"no error was raised, expected {pattern!r}")


def comes_back(work: Callable[[], None], seconds: float = 30) -> None:
    """Repeats `work` until it succeeds, at the latest when the supervisor tries again."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except RuntimeFailure:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def report(what: str, error: RuntimeFailure) -> None:
    print(json.dumps(f"{what}: {type(error).__name__}: {error.message}"[:300]), flush=True)


@contextmanager
def limited(pid: int, which: int, soft: int) -> Iterator[None]:
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (soft, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, which, before)


def mount(folder: str, size: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", folder], check=True)


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as error:
            assert error.errno == errno.ENOSPC


def jumping_clock(folder: Path) -> Path:
    """Builds a library for LD_PRELOAD that makes the wall clock jump back and forth."""
    library = folder / "jumping_clock.so"
    source = ROOT / "lab" / "campaigns" / "jumping_clock.c"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", "-o", str(library)]
    subprocess.run([*compiler, str(source)], check=True, capture_output=True)
    return library
