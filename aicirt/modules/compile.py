"""Compiles modules in a child process with limits on time and memory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType

from aicirt.contract.errors import CompileLimitError, ProtocolError, RuntimeFailure, error_from_wire
from aicirt.contract.modules import ControllerInfo
from aicirt.settings import Limits
from aicirt.system.files import Descriptor
from aicirt.system.pace import pace
from aicirt.system.processes import Child, Start, User, child_environment
from aicirt.system.silence import LOOK_SECONDS, Silence


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """Limits on compiling one module."""

    #: an ordinary module of `Limits.module_bytes` (16 MiB) needs about 21 s on one fast core, and more on a
    #: slower machine
    cpu_s: int = field(default_factory=lambda: round(60 * pace()))
    #: in addition to the memory of Python and the compiler at the start; 1 MB of Wasm needs about 0.2 GB
    memory_bytes: int = 2 << 30
    #: the time in which the compiler computes or sleeps; it may wait for a processor for longer
    silence_s: float = 180.0
    #: machine code is 3 to 5 times as large as its module, which has at most `Limits.module_bytes` (16 MiB)
    artifact_bytes: int = 256 << 20


_COMPILER = "aicirt.modules.compiler"
#: bytes read of the child's answer and of its last error output, which hostile code may control
_MAX_ANSWER, _MAX_OUTPUT = 4 << 20, 500


def compile_in_child(
    wasm: Path, artifact: Path, limits: Limits | None = None, cost: CompileLimits | None = None
) -> ControllerInfo:
    """Compiles the file `wasm` to the new file `artifact`. Not for use in an event loop.

    Raises `ModuleError` with ``detail["reasons"]`` if the module is refused, and `CompileLimitError`
    if it costs too much; no artifact remains then.
    """
    import asyncio  # takes 0.1 s, and the compiler process imports this module

    return asyncio.run(compile_in_child_async(wasm, artifact, limits, cost))


async def compile_in_child_async(
    wasm: Path,
    artifact: Path,
    limits: Limits | None = None,
    cost: CompileLimits | None = None,
    spent: Callable[[float], None] | None = None,
    user: User | None = None,
    start: Start | None = None,
) -> ControllerInfo:
    """Does the same as `compile_in_child`, for asyncio. Cancellation kills the child.

    The child runs as `user`, and is started by `start` if given. Calls `spent` with the child's seconds of
    CPU time, however the child ended.
    """
    with _Compilation(wasm, artifact, limits or Limits(), cost or CompileLimits(), spent, user) as made:
        import asyncio

        child = await made.fork(start) if start else made.execute()
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(child.pidfd.fd, ended.set)
        silence = Silence(child.pid)
        try:
            while not ended.is_set():
                if silence.longer_than(made.cost.silence_s):
                    problem = f"compiling took more than {made.cost.silence_s:g} s"
                    raise CompileLimitError(problem, limit="silence_s")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), LOOK_SECONDS)
        finally:
            loop.remove_reader(child.pidfd.fd)
        return made.outcome()


class _Compilation:
    """The files and the process of `aicirt.modules.compiler`.

    Leaving the block ends the process and reports its CPU time.
    """

    def __init__(
        self,
        wasm: Path,
        artifact: Path,
        limits: Limits,
        cost: CompileLimits,
        spent: Callable[[float], None] | None = None,
        user: User | None = None,
    ) -> None:
        """Opens the files. Raises RuntimeFailure if `wasm` is missing, OSError on a lack of resources."""
        self.cost = cost
        self._wasm, self._artifact = wasm, artifact
        self._spent = spent
        self._done = False
        self._child: Child | None = None
        both = json.dumps([asdict(limits), asdict(cost)])
        self._arguments = [both, str(os.getpid()), *([str(user.uid), str(user.gid)] if user else [])]
        #: memory files: unlike a pipe, they need no reader while the child runs
        self._out, self._err = (Descriptor(os.memfd_create("aici-compiler")) for _ in range(2))
        try:
            self._source = Descriptor(os.open(wasm, os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError as error:
            raise RuntimeFailure(f"the module cannot be compiled: {error}") from None
        self._target = Descriptor(
            os.open(artifact, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        )

    def execute(self) -> Child:
        """Starts the compiler in a new interpreter. Raises OSError on a lack of resources."""
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _COMPILER, str(self._target.fd), *self._arguments],
            env=child_environment(),
            stdin=self._source.fd,
            stdout=self._out.fd,
            stderr=self._err.fd,
            pass_fds=[self._target.fd],
        )
        process.returncode = 0  # the child waits for the process
        self._child = Child(process.pid)
        return self._child

    async def fork(self, start: Start) -> Child:
        """Starts the compiler. Raises RuntimeFailure or OSError on a lack of resources."""
        files = [self._source.fd, self._out.fd, self._err.fd, self._target.fd]
        self._child = await start(_COMPILER, [str(len(files) - 1), *self._arguments], files, 0)
        return self._child

    def __enter__(self) -> _Compilation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait_for_exit()
            if self._spent is not None:
                self._spent(self._child.cpu_s)
        if not self._done:
            self._artifact.unlink(missing_ok=True)

    def outcome(self) -> ControllerInfo:
        """Returns the result of a child that has ended. Raises the child's error, or one for how it ended."""
        assert self._child is not None
        status, cost = self._child.wait_for_exit(), self.cost
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
            answer = json.loads(os.pread(self._out.fd, _MAX_ANSWER, 0))
            if not isinstance(answer, dict):
                raise ValueError("not an object")
            if "error" in answer:
                raise error_from_wire(answer["error"])
            info = ControllerInfo.from_compiler(answer.get("info"), *self._source_id())
        except (ValueError, TypeError, RecursionError, ProtocolError):
            problem = f"the compiler process failed with status {status}: {output}"
            raise RuntimeFailure(problem) from None
        self._done = True
        return info

    def _source_id(self) -> tuple[str, int]:
        """Returns the id and the size of the module, which must not come from the compiler."""
        with open(self._wasm, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


def _end_of(file: Descriptor) -> str:
    size = os.fstat(file.fd).st_size
    return os.pread(file.fd, _MAX_OUTPUT, max(0, size - _MAX_OUTPUT)).decode(errors="replace").strip()
