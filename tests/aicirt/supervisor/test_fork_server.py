"""The fork server: what its forks inherit, how their ends are reported, and its own end."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from wasmtime import wat2wasm

from aicirt.contract.errors import CompileLimitError, ModuleError, RuntimeFailure
from aicirt.modules.compile import CompileLimits, compile_in_child_async
from aicirt.modules.store import ModuleStore
from aicirt.settings import WorkerConfig
from aicirt.supervisor import fork_server
from aicirt.supervisor.fork_server import ForkServer
from aicirt.supervisor.pool import WorkerPool
from aicirt.system.processes import Child
from lab.system.processes import command_line, family, left_behind
from tests.aicirt.supervisor.probe import NAME

MODULE = """(module (memory (export "memory") 1) (func (export "aici_abi_v1"))
  (func (export "aici_arg") (result i32) (i32.const 16)) {}
  (func (export "aici_mid_process") (result i32) (i32.const 42)))"""


class Probe:
    """A process that has reported what it inherited, and ends when it is told."""

    def __init__(self, child: Child, stdin: socket.socket, found: dict[str, Any]) -> None:
        self.child = child
        self.found = found
        self._stdin = stdin

    @classmethod
    async def start(cls, server: ForkServer, status: int = 0) -> Probe:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            files = [theirs.fileno(), theirs.fileno(), 2]
            child = await server.start(NAME, [str(status)], files, 0)
        data = b""
        while not data.endswith(b"\n"):
            piece = await asyncio.get_running_loop().sock_recv(ours, 1 << 16)
            assert piece, "it has ended early"
            data += piece
        return cls(child, ours, json.loads(data))

    def end(self) -> int:
        """Lets the process end; returns its status."""
        self._stdin.close()
        return self.child.wait_for_exit()


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fork_server, "_MODULE", "tests.aicirt.supervisor.probe")
    yield


def run(test: Callable[[ForkServer], Awaitable[None]]) -> None:
    async def main() -> None:
        with closing(ForkServer()) as server:
            await test(server)

    before = family(os.getpid())
    asyncio.run(main())
    started = {pid: start for pid, start in family(os.getpid()).items() if pid not in before}
    assert left_behind(started) == [], "no process stays"


def descriptors(pid: int) -> dict[str, str]:
    return {file.name: str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir()}


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_forks_inherit_only_their_own_descriptors(probing: None) -> None:
    async def test(server: ForkServer) -> None:
        one, two = await Probe.start(server), await Probe.start(server)
        for probe in (one, two):
            files = probe.found["files"]
            assert sorted(files) == ["0", "1", "2"]
            assert files["0"] == files["1"] and files["0"].startswith("socket:")
        assert one.found["files"]["0"] != two.found["files"]["0"]
        assert one.end() == two.end() == 0

    run(test)


def test_forks_have_no_secrets_no_threads_and_default_signals(
    probing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "secret")

    async def test(server: ForkServer) -> None:
        probe = await Probe.start(server)
        found = probe.found
        assert "PATH" in found["environment"] and "HF_TOKEN" not in found["environment"]
        assert b"HF_TOKEN" not in Path(f"/proc/{probe.child.pid}/environ").read_bytes()
        assert found["threads"] == 1
        # Python ignores two in every process; `nohup` and shells have their children ignore others
        ignored = {n for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN}
        assert set(found["ignored"]) == ignored | {signal.SIGPIPE, signal.SIGXFSZ}
        assert found["blocked"] == [signal.SIGINT, signal.SIGTERM], "Ctrl-C is for the daemon"
        probe.end()

    run(test)


def test_a_fork_is_a_child_of_the_caller_and_shows_its_own_command(probing: None) -> None:
    async def test(server: ForkServer) -> None:
        probe = await Probe.start(server, 3)
        assert probe.found["parent"] == os.getpid()
        assert probe.found["title"] == [NAME, "3"] and probe.found["name"] == "aicirt.probe"
        assert b"probe" in command_line(probe.child.pid)
        assert probe.end() == 3 and probe.child.cpu_s >= 0

    run(test)


def test_forks_of_one_server_share_their_layout_until_one_crashes(probing: None) -> None:
    async def test(server: ForkServer) -> None:
        first = server.pid
        one, two = await Probe.start(server, -signal.SIGKILL), await Probe.start(server, -signal.SIGSEGV)
        assert one.found["layout"] == two.found["layout"]
        assert one.end() == -signal.SIGKILL
        assert (third := await Probe.start(server)).found["layout"] == one.found["layout"]
        assert two.end() == -signal.SIGSEGV
        while server.pid == first:  # it goes on until the other one is ready
            (await Probe.start(server)).end()
        fourth = await Probe.start(server)
        if Path("/proc/sys/kernel/randomize_va_space").read_text().strip() != "0":
            assert fourth.found["layout"] != one.found["layout"]
        assert third.end() == fourth.end() == 0, "forks outlive the process that forked them"

    run(test)


def test_a_fork_server_that_dies_is_replaced(probing: None) -> None:
    async def test(server: ForkServer) -> None:
        one = await Probe.start(server)
        dead = server.pid
        os.kill(dead, signal.SIGKILL)
        two = await Probe.start(server)
        assert server.pid != dead
        assert one.end() == two.end() == 0

    run(test)


def test_a_fork_server_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")

    async def test(server: ForkServer) -> None:
        with pytest.raises(RuntimeFailure, match="has ended twice"):
            await server.start(NAME, [], [], 3)

    run(test)


def test_a_fork_server_without_free_descriptors_says_so(probing: None) -> None:
    async def test(server: ForkServer) -> None:
        (await Probe.start(server)).end()
        limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        for free in (2, 5):  # none for the files of a request; none to fork
            used = {int(file.name) for file in Path(f"/proc/{server.pid}/fd").iterdir()}
            below = next(n for n in range(1000) if len(set(range(n)) - used) == free)
            resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (below, limits[1]))
            with pytest.raises(OSError, match="Too many open files") as caught:
                await Probe.start(server)
            assert caught.value.errno == errno.EMFILE
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
        assert (await Probe.start(server)).end() == 0

    run(test)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
def test_cancelled_start_leaves_no_process(probing: None, turns: int) -> None:
    async def test(server: ForkServer) -> None:
        (await Probe.start(server)).end()
        before = family(os.getpid()).keys()  # earlier tests may have left the process that forks programs
        ours, theirs = socket.socketpair()
        with ours, theirs:
            start = asyncio.ensure_future(server.start(NAME, ["0"], [theirs.fileno(), 1, 2], 0))
            for _ in range(turns):
                await asyncio.sleep(0)
            start.cancel()
            with pytest.raises(asyncio.CancelledError):
                await start
        (await Probe.start(server)).end()
        await until(lambda: family(os.getpid()).keys() == before)

    run(test)


def test_fork_server_and_forks_end_with_a_killed_supervisor() -> None:
    script = """
        import asyncio, os
        from aicirt.settings import WorkerConfig
        from aicirt.supervisor.fork_server import ForkServer
        from aicirt.supervisor.pool import WorkerPool
        async def main():
            server = ForkServer()
            pool = WorkerPool(1, WorkerConfig(), server.start)
            await pool.ready()
            print(server.pid, *(process.pid for process in pool.all), flush=True)
            await asyncio.sleep(600)
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        pids = [int(word) for word in supervisor.stdout.readline().split()]
        members = family(supervisor.pid)
        assert len(pids) == 3 and {supervisor.pid, *pids} == members.keys()
        supervisor.kill()
    assert left_behind(members) == []


def test_workers_have_the_same_descriptors_but_for_their_own_socket() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may look into a worker")

    async def test(server: ForkServer) -> None:
        pool = WorkerPool(2, WorkerConfig(), server.start)
        await pool.ready()
        one, two = (descriptors(worker.pid) for worker in pool.workers)
        assert one.keys() == two.keys()
        assert one["3"].startswith("socket:") and one["3"] != two["3"]
        sockets = [{file for file in files.values() if file.startswith("socket:")} for files in (one, two)]
        streams = {str(Path(f"/proc/self/fd/{number}").readlink()) for number in range(3)}
        assert not sockets[0] & sockets[1] - streams
        await pool.stop_all()

    run(test)


def test_modules_are_compiled_in_forks(tmp_path: Path) -> None:
    async def test(server: ForkServer) -> None:
        spent: list[float] = []
        wasm, artifact = tmp_path / "module.wasm", tmp_path / "artifact"

        async def compiled(text: str, cost: CompileLimits | None = None) -> None:
            wasm.write_bytes(bytes(wat2wasm(text)))
            artifact.unlink(missing_ok=True)
            await compile_in_child_async(
                wasm, artifact, cost=cost, spent=spent.append, user=None, start=server.start
            )

        await compiled(MODULE.format(""))
        assert artifact.stat().st_size > 0 and spent.pop() > 0
        with pytest.raises(ModuleError, match="reactor"):
            await compiled(MODULE.format('(func (export "_start"))'))
        bomb = MODULE.format(
            f"(func (param i32) (result i32) (local.get 0) {'(i32.const 7) i32.add ' * 400_000})"
        )
        with pytest.raises(CompileLimitError, match="1 s of CPU time"):
            await compiled(bomb, CompileLimits(cpu_s=1))
        with pytest.raises(CompileLimitError, match="memory"):
            await compiled(bomb, CompileLimits(memory_bytes=64 << 20))
        assert not artifact.exists()
        store = ModuleStore(tmp_path / "store")
        store.start = server.start
        assert (await store.add_async(bytes(wat2wasm(MODULE.format(""))))).compiled_size > 0

    run(test)
