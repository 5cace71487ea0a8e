"""The cases of the campaign `scarcity`, each in a separate process with scarce resources."""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aicirt.contract.errors import RuntimeFailure
from aicirt.contract.modules import StoredScript
from aicirt.wasm.memory import _PAGEMAP_SCAN, PagemapReader, change_finder
from lab.campaigns import syscalls
from lab.campaigns.load import Load
from lab.campaigns.processes import children, fork_servers
from lab.campaigns.short_supply import (
    VOCABULARY,
    comes_back,
    connect,
    fill,
    goes_on,
    jumping_clock,
    limited,
    load_on,
    mount,
    refused,
    report,
    start,
    until_refused,
)
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime


@dataclass(frozen=True)
class Case:
    """A case. `needs` is "mounts" (a private mount namespace), "user" (not root), or empty."""

    work: Callable[[bytes], None]
    needs: str = ""


def _disk_full(wasm: bytes) -> None:
    """No space in the folder of modules, from the start or while a daemon runs."""
    with tempfile.TemporaryDirectory() as folder:
        mount(folder, "256k")
        store = Path(folder) / "store"
        with start(store=store) as runtime:
            runtime.register(VOCABULARY)
            with refused("stored.*No space left.*make room"):
                runtime.upload(wasm)
            assert not [path for path in store.rglob("*") if path.is_file() and path.parent.name != "owners"]
            subprocess.run(["mount", "-o", "remount,size=16m", folder], check=True)
            load = load_on(runtime, wasm)
            filler = Path(folder) / "filler"
            fill(filler)
            _only_reads(runtime, load, wasm, "(No space left|disk is full).*make room")
            filler.unlink()
            runtime.tag(load.module, "name")
        subprocess.run(["umount", folder], check=True)


def _read_only(wasm: bytes) -> None:
    """A read-only folder of modules, from the start or while a daemon runs."""
    problem = "(Read-only|readonly|unable to open).*writable"
    with tempfile.TemporaryDirectory() as folder:
        mount(folder, "16m")
        store = Path(folder) / "store"
        with start(store=store) as runtime:
            runtime.register(VOCABULARY)
            load = load_on(runtime, wasm)
            for path in list(store.iterdir()):  # the file system itself has files that are being written
                subprocess.run(["mount", "--bind", path, path], check=True)
                subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
            _only_reads(runtime, load, wasm, problem)
            for path in list(store.iterdir()):
                subprocess.run(["mount", "-o", "remount,bind,rw", path], check=True)
            runtime.tag(load.module, "name")
        subprocess.run(["umount", *store.iterdir()], check=True)
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        with start(store=store) as runtime:
            runtime.register(VOCABULARY)
            _only_reads(runtime, load_on(runtime, wasm), wasm, problem)
        with refused("modules cannot be stored in .*Read-only.*make it writable"):
            start(store=Path(folder) / "other")
        subprocess.run(["umount", folder], check=True)


def _only_reads(runtime: Runtime, load: Load, wasm: bytes, problem: str) -> None:
    """Checks that stored modules are found and run, and that changes are refused, with a cure."""
    goes_on(load)
    runtime.free([runtime.instantiate(load.module, "5 0", [1])])
    assert load.module in [info.id for info in runtime.list()]
    script = StoredScript(load.module, "python", "script.py", "async def main(): pass")
    changes = [
        partial(runtime.upload, wasm + bytes([0, 3, 1]) + b"ab"),
        partial(runtime.upload_script, script),
        partial(runtime.tag, load.module, "another"),
        partial(runtime.remove, load.module, force=True),
    ]
    for change in changes:
        with refused(problem):
            change()
    assert runtime.describe(load.module).id == load.module


def _no_landlock(wasm: bytes) -> None:
    """A kernel without Landlock: workers run without it and report that."""
    syscalls.deny(syscalls.LANDLOCK, errno.ENOSYS)
    with start() as runtime:
        runtime.register(VOCABULARY)
        goes_on(load_on(runtime, wasm))
        assert [worker["sandbox"]["landlock"] for worker in runtime.health()["workers"]] == [0]


def _no_pagemap_scan(wasm: bytes) -> None:
    """A kernel before 6.7: forks find changed pages by reading the page map."""
    syscalls.deny_ioctl(_PAGEMAP_SCAN, errno.ENOTTY)
    finder = change_finder()
    assert isinstance(finder, PagemapReader)
    finder.close()
    with start() as runtime:
        runtime.register(VOCABULARY)
        load = load_on(runtime, wasm)
        while load.done["forks"] < 20:
            goes_on(load)


def _few_descriptors(wasm: bytes) -> None:
    """No more file descriptors: first for the worker, then for the supervisor."""
    with start() as runtime:
        runtime.register(VOCABULARY)
        load = load_on(runtime, wasm)
        goes_on(load)
        health = runtime.health()
        for pid in (health["workers"][0]["pid"], health["pid"]):
            with limited(pid, resource.RLIMIT_NOFILE, 3):
                with refused("ulimit -n"):
                    for key in range(50):
                        load.runtime.prepare(load.module, f"{time.monotonic_ns() & 0xFFFFFFF} {key}")
                        load.runtime.free([runtime.instantiate(load.module, f"{pid} {key}", [1])])
            comes_back(lambda: runtime.free([runtime.instantiate(load.module, "77 0", [1])]))
        goes_on(load)


def _no_processes(wasm: bytes) -> None:
    """No more processes for this user: no compilation, worker or daemon can start; existing ones continue."""
    with Daemon(workers=1) as daemon:
        load = connect(daemon, wasm)
        health = load.runtime.health()
        (fork_server,) = fork_servers(health["pid"])
        with limited(fork_server, resource.RLIMIT_NPROC, 1):
            with refused("modules cannot be compiled .*unavailable.*ulimit -u"):
                load.runtime.upload(wasm + bytes([0, 3, 1]) + b"ab")
            goes_on(load)
            os.kill(health["workers"][0]["pid"], signal.SIGKILL)
            with refused("worker 0 cannot be started: .*ulimit -u"):
                until_refused(load)
        comes_back(lambda: load.runtime.free([load.runtime.instantiate(load.module, "5 0", [1])]))
        load.runtime.upload(wasm + bytes([0, 3, 1]) + b"ab")
        with limited(os.getpid(), resource.RLIMIT_NPROC, 1):
            with refused("aicirt cannot be started: .*ulimit -u"):
                start()
        _threads_of_a_new_daemon()
        load.runtime.close()


def _threads_of_a_new_daemon() -> None:
    """Raises the limit by one process or thread at a time until a daemon can start."""
    for more in range(30):
        used = sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in _own_processes())
        with limited(os.getpid(), resource.RLIMIT_NPROC, used + more):
            try:
                start().close()
            except RuntimeFailure as error:
                report("daemon", error)
                assert re.search("ulimit -u|no thread", error.message), error.message
            else:
                return
    raise AssertionError("30 processes were not enough")


def _own_processes() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.getuid():
                found.append(entry.name)
        except OSError:
            continue
    return found


def _small_stack(wasm: bytes) -> None:
    """A small stack: the runtime checks its size before any guest runs. Too small a stack is an error."""
    with limited(os.getpid(), resource.RLIMIT_STACK, 256 << 10):
        with refused("the stack of this thread has .*raise `ulimit -s`"):
            start()
    with limited(os.getpid(), resource.RLIMIT_STACK, 1 << 20):
        with start() as runtime:
            runtime.register(VOCABULARY)
            goes_on(load_on(runtime, wasm))


def _no_address_space(wasm: bytes) -> None:
    """No address space for another guest in a worker: the sequence does not start, others continue."""
    with start() as runtime:
        runtime.register(VOCABULARY)
        load = load_on(runtime, wasm)
        goes_on(load)
        (worker,) = runtime.health()["workers"]
        started = []
        with limited(worker["pid"], resource.RLIMIT_AS, 300 << 30):
            with refused("ulimit -v"):
                for _ in range(400):
                    started.append(runtime.instantiate(load.module, "1 0", [1]))
        runtime.free(started)
        goes_on(load)


def _clock_jumps(wasm: bytes) -> None:
    """A wall clock that jumps by an hour at every other reading of the daemon's processes."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LD_PRELOAD"] = str(jumping_clock(Path(folder)))
        with start() as runtime:
            runtime.register(VOCABULARY)
            load = load_on(runtime, wasm)
            goes_on(load)
            time.sleep(2)  # the processes wait for work
            goes_on(load)
            (worker,) = runtime.health()["workers"]
            os.kill(worker["pid"], signal.SIGKILL)
            comes_back(lambda: runtime.free([runtime.instantiate(load.module, "77 0", [1])]))
        del os.environ["LD_PRELOAD"]


CASES = {
    "disk_full": Case(_disk_full, "mounts"),
    "read_only": Case(_read_only, "mounts"),
    "no_landlock": Case(_no_landlock),
    "no_pagemap_scan": Case(_no_pagemap_scan),
    "few_descriptors": Case(_few_descriptors),
    "no_processes": Case(_no_processes, "user"),
    "small_stack": Case(_small_stack),
    "no_address_space": Case(_no_address_space),
    "clock_jumps": Case(_clock_jumps),
}


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def main(case: str, wasm: str) -> None:
    """Runs a case. Exits with an error if it fails."""
    before = _open_files()
    CASES[case].work(Path(wasm).read_bytes())
    left = _open_files() - before
    assert not left and not children(os.getpid()), (left, children(os.getpid()))


if __name__ == "__main__":
    main(*sys.argv[1:])
