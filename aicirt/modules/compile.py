"""Compile a module in a child process, so that a bad one costs a bounded amount of time and memory.

``python -m aicirt.modules.compile WASM ARTIFACT LIMITS PARENT`` checks, rewrites and compiles
the file and writes the artifact; it prints one line of JSON, ``{"info": ...}`` or
``{"error": [code, message, detail]}``. LIMITS is JSON of `Limits` and `CompileLimits`, PARENT the
process id of the caller, with whom it ends.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from aicirt.child import child_environment, stay_in_background
from aicirt.errors import AiciError, CompileLimitError, RuntimeFailure, error_from_wire
from aicirt.modules.info import ModuleInfo
from aicirt.wasm.check import check
from aicirt.wasm.limits import Limits

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class CompileLimits:
    """What compiling one module may cost."""

    #: an honest module of `Limits.module_bytes` (16 MiB) needs about 21 s on one fast core
    cpu_s: int = 60
    #: beside what Python and the compiler take before they begin; 1 MB of Wasm needs about 0.2 GB
    memory_bytes: int = 2 << 30
    #: a loaded machine may need several times the CPU time
    wall_s: float = 180.0


def compile_in_child(
    wasm: Path, artifact: Path, limits: Limits | None = None, cost: CompileLimits | None = None
) -> ModuleInfo:
    """Compile the file `wasm` to the new file `artifact`.

    Raises `ModuleError` with ``detail["reasons"]`` if the module is refused, `CompileLimitError`
    if it costs too much; then there is no artifact.
    """
    cost = cost or CompileLimits()
    child = subprocess.Popen(
        _command(wasm, artifact, limits, cost),
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = child.communicate(timeout=cost.wall_s)
    except subprocess.TimeoutExpired:
        raise _too_slow(cost) from None
    finally:
        if child.poll() is None:
            child.kill()
            child.communicate()
    return _outcome(child.returncode, out, err, cost)


async def compile_in_child_async(
    wasm: Path, artifact: Path, limits: Limits | None = None, cost: CompileLimits | None = None
) -> ModuleInfo:
    """`compile_in_child` for asyncio; cancelling it kills the child."""
    cost = cost or CompileLimits()
    child = await asyncio.create_subprocess_exec(
        *_command(wasm, artifact, limits, cost),
        env=child_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(child.communicate(), cost.wall_s)
    except TimeoutError:
        raise _too_slow(cost) from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode is not None
    return _outcome(child.returncode, out, err, cost)


def _command(wasm: Path, artifact: Path, limits: Limits | None, cost: CompileLimits) -> list[str]:
    both = json.dumps([asdict(limits or Limits()), asdict(cost)])
    program = [sys.executable, "-P", "-m", "aicirt.modules.compile"]
    return [*program, str(wasm), str(artifact), both, str(os.getpid())]


def _too_slow(cost: CompileLimits) -> CompileLimitError:
    return CompileLimitError(f"compiling took more than {cost.wall_s:g} s", limit="wall_s")


def _outcome(status: int, out: bytes, err: bytes, cost: CompileLimits) -> ModuleInfo:
    said = err.decode(errors="replace").strip()
    if status == -signal.SIGXCPU:
        raise CompileLimitError(f"compiling took more than {cost.cpu_s} s of CPU time", limit="cpu_s")
    if status in (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGKILL):
        # the compiler aborts, crashes or is killed when there is no memory left
        raise CompileLimitError(
            f"compiling ended by signal {-status}, probably out of the {cost.memory_bytes} bytes it may use",
            limit="memory_bytes",
            output=said[-500:],
        )
    try:
        answer: dict[str, Any] = json.loads(out)
    except ValueError:
        raise RuntimeFailure(f"the compiler process failed with status {status}: {said[-500:]}") from None
    if "error" in answer:
        raise error_from_wire(answer["error"])
    return ModuleInfo.from_wire(answer["info"])


# -- the child ------------------------------------------------------------------------------


def _compile(wasm_path: Path, artifact: Path, limits: Limits, cost: CompileLimits) -> ModuleInfo:
    # only the child needs wasmtime's engine
    from aicirt.wasm.engine import Engine
    from aicirt.wasm.program import compile_module, serialize
    from aicirt.wasm.rewrite import rewrite

    _limit_child(cost)
    wasm = wasm_path.read_bytes()
    report = check(wasm, limits)
    report.require()
    compiled = serialize(compile_module(Engine(limits), rewrite(wasm)))
    fd = os.open(artifact, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(compiled)
        file.flush()
        os.fsync(file.fileno())
    info = ModuleInfo.from_report(hashlib.sha256(wasm).hexdigest(), report)
    info.compiled_size = len(compiled)
    info.compiled_sha256 = hashlib.sha256(compiled).hexdigest()
    return info


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # it died while this process was starting, so that no signal will come


def _limit_child(cost: CompileLimits) -> None:
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + cost.memory_bytes, used + cost.memory_bytes))
    # the soft limit sends SIGXCPU, which says why; a second later comes SIGKILL
    resource.setrlimit(resource.RLIMIT_CPU, (cost.cpu_s, cost.cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _answer(wasm: str, artifact: str, both: str) -> dict[str, Any]:
    limits, cost = json.loads(both)
    try:
        info = _compile(Path(wasm), Path(artifact), Limits(**limits), CompileLimits(**cost))
    except MemoryError:
        return {"error": CompileLimitError("compiling ran out of memory", limit="memory_bytes").to_wire()}
    except AiciError as error:
        return {"error": error.to_wire()}
    except OSError as error:
        return {"error": RuntimeFailure(f"the module cannot be compiled: {error}").to_wire()}
    return {"info": info.to_wire()}


if __name__ == "__main__":
    _die_with(int(sys.argv[4]))
    stay_in_background()
    print(json.dumps(_answer(*sys.argv[1:4])))
