"""Compiles modules in a child process with limits on time and memory."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from aicirt.contract.errors import CompileLimitError, ProtocolError, RuntimeFailure, error_from_wire
from aicirt.contract.modules import ModuleInfo
from aicirt.settings import Limits
from aicirt.system.environment import child_environment
from aicirt.system.files import Descriptor
from aicirt.system.user import User


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """Limits on compiling one module."""

    #: an ordinary module of `Limits.module_bytes` (16 MiB) needs about 21 s on one fast core
    cpu_s: int = 60
    #: in addition to the memory of Python and the compiler at the start; 1 MB of Wasm needs about 0.2 GB
    memory_bytes: int = 2 << 30
    #: a loaded machine may need several times the CPU time
    wall_s: float = 180.0
    #: machine code is 3 to 5 times as large as its module, which has at most `Limits.module_bytes` (16 MiB)
    artifact_bytes: int = 256 << 20


#: bytes read of the child's answer and of its last error output, which hostile code may control
_MOST_ANSWER, _MOST_OUTPUT = 4 << 20, 500


def compile_in_child(
    wasm: Path, artifact: Path, limits: Limits | None = None, cost: CompileLimits | None = None
) -> ModuleInfo:
    """Compiles the file `wasm` to the new file `artifact`.

    Raises `ModuleError` with ``detail["reasons"]`` if the module is refused, and `CompileLimitError`
    if it costs too much; no artifact remains then.
    """
    with _Child(wasm, artifact, limits or Limits(), cost or CompileLimits()) as child:
        poll = select.poll()
        poll.register(child.pidfd.fd, select.POLLIN)
        if not poll.poll(child.cost.wall_s * 1000):
            raise child.too_slow()
        return child.outcome()


async def compile_in_child_async(
    wasm: Path,
    artifact: Path,
    limits: Limits | None = None,
    cost: CompileLimits | None = None,
    spent: Callable[[float], None] | None = None,
    user: User | None = None,
) -> ModuleInfo:
    """Does the same as `compile_in_child`, for asyncio. Cancellation kills the child.

    The child runs as `user`. Calls `spent` with the child's seconds of CPU time, however the child ended.
    """
    with _Child(wasm, artifact, limits or Limits(), cost or CompileLimits(), spent, user) as child:
        import asyncio  # takes 0.1 s, and the compiler process imports this module

        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(child.pidfd.fd, ended.set)
        try:
            await asyncio.wait_for(ended.wait(), child.cost.wall_s)
        except TimeoutError:
            raise child.too_slow() from None
        finally:
            loop.remove_reader(child.pidfd.fd)
        return child.outcome()


class _Child:
    """A running `aicirt.modules.compiler`. Leaving the block ends it and reports its CPU time."""

    def __init__(
        self,
        wasm: Path,
        artifact: Path,
        limits: Limits,
        cost: CompileLimits,
        spent: Callable[[float], None] | None = None,
        user: User | None = None,
    ) -> None:
        """Starts the compiler. Raises RuntimeFailure if `wasm` is missing, OSError on a lack of resources."""
        self.cost = cost
        self._wasm, self._artifact = wasm, artifact
        self._spent = spent
        self._done = False
        #: memory files: unlike a pipe, they need no reader while the child runs
        self._out, self._err = (Descriptor(os.memfd_create("aici-compiler")) for _ in range(2))
        try:
            source = Descriptor(os.open(wasm, os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError as error:
            raise RuntimeFailure(f"the module cannot be compiled: {error}") from None
        target = Descriptor(os.open(artifact, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        command = [sys.executable, "-P", "-m", "aicirt.modules.compiler", str(target.fd)]
        both = json.dumps([asdict(limits), asdict(cost)])
        try:
            self._process = subprocess.Popen(
                [*command, both, str(os.getpid()), *([str(user.uid), str(user.gid)] if user else [])],
                env=child_environment(),
                stdin=source.fd,
                stdout=self._out.fd,
                stderr=self._err.fd,
                pass_fds=[target.fd],
            )
            try:
                self.pidfd = Descriptor(os.pidfd_open(self._process.pid))
            except BaseException:
                self._process.kill()
                self._process.wait()
                raise
        except BaseException:
            artifact.unlink()
            raise

    def __enter__(self) -> _Child:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.returncode is None:
            self._process.kill()
            self._reap()
        if not self._done:
            self._artifact.unlink(missing_ok=True)

    def too_slow(self) -> CompileLimitError:
        """Returns the error for a compiler that has exceeded its wall-clock time."""
        return CompileLimitError(f"compiling took more than {self.cost.wall_s:g} s", limit="wall_s")

    def outcome(self) -> ModuleInfo:
        """Returns the result of a child that has ended. Raises the child's error, or one for how it ended."""
        status, cost = self._reap(), self.cost
        output = _end_of(self._err)
        if status == -signal.SIGXCPU:
            raise CompileLimitError(f"compiling took more than {cost.cpu_s} s of CPU time", limit="cpu_s")
        if status == -signal.SIGSYS:
            raise RuntimeFailure("the compiler was killed for a system call that its sandbox forbids")
        if status in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGKILL):
            # the compiler aborts, crashes or is killed if no memory is left
            raise CompileLimitError(
                f"the compiler was killed by signal {-status}; it probably needed more than the "
                f"{cost.memory_bytes} bytes of memory that it may use",
                limit="memory_bytes",
                output=output,
            )
        try:
            answer = json.loads(os.pread(self._out.fd, _MOST_ANSWER, 0))
            if not isinstance(answer, dict):
                raise ValueError("not an object")
            if "error" in answer:
                raise error_from_wire(answer["error"])
            info = ModuleInfo.from_compiler(answer.get("info"), *self._source_id())
        except (ValueError, TypeError, RecursionError, ProtocolError):
            problem = f"the compiler process failed with status {status}: {output}"
            raise RuntimeFailure(problem) from None
        self._done = True
        return info

    def _source_id(self) -> tuple[str, int]:
        """Returns the id and the size of the module, which must not come from the compiler."""
        with open(self._wasm, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size

    def _reap(self) -> int:
        """Waits for the child's end; returns its status in subprocess's encoding."""
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._spent is not None:
            self._spent(usage.ru_utime + usage.ru_stime)
        return self._process.returncode


def _end_of(file: Descriptor) -> str:
    size = os.fstat(file.fd).st_size
    return os.pread(file.fd, _MOST_OUTPUT, max(0, size - _MOST_OUTPUT)).decode(errors="replace").strip()
