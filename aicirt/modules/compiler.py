"""The process that compiles one module: it checks, rewrites and compiles what it is given, within limits.

``python -m aicirt.modules.compiler ARTIFACT LIMITS PARENT [UID GID]`` reads the module from its input and
writes the artifact to the open file with the number ARTIFACT; it opens none itself. It prints a line of JSON,
``{"info": ...}`` or ``{"error": [code, message, detail]}``. LIMITS is JSON of `Limits` and `CompileLimits`,
PARENT the process id of the caller, with whom it ends, UID and GID whom it becomes before.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from aicirt.child import stay_in_background
from aicirt.errors import AiciError, CompileLimitError, RuntimeFailure
from aicirt.modules.compile import CompileLimits
from aicirt.modules.info import ModuleInfo
from aicirt.user import become
from aicirt.wasm.check import check
from aicirt.wasm.engine import Engine
from aicirt.wasm.limits import Limits
from aicirt.wasm.program import compile_module, serialize
from aicirt.wasm.rewrite import rewrite

_PR_SET_PDEATHSIG = 1


def main(artifact: str, both: str, parent: str, *user: str) -> dict[str, Any]:
    """What is printed."""
    if user:
        become(*map(int, user))
    _die_with(int(parent))
    stay_in_background()
    limits, cost = json.loads(both)
    try:
        info = _compile(int(artifact), Limits(**limits), CompileLimits(**cost))
    except MemoryError:
        return {"error": CompileLimitError("compiling ran out of memory", limit="memory_bytes").to_wire()}
    except AiciError as error:
        return {"error": error.to_wire()}
    except OSError as error:
        return {"error": RuntimeFailure(f"the module cannot be compiled: {error}").to_wire()}
    return {"info": info.to_wire()}


def _compile(artifact: int, limits: Limits, cost: CompileLimits) -> ModuleInfo:
    _limit(cost)
    wasm = sys.stdin.buffer.read()
    report = check(wasm, limits)
    report.require()
    compiled = serialize(compile_module(Engine(limits), rewrite(wasm)))
    with os.fdopen(artifact, "wb") as file:
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


def _limit(cost: CompileLimits) -> None:
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + cost.memory_bytes, used + cost.memory_bytes))
    # the soft limit sends SIGXCPU, which says why; a second later comes SIGKILL
    resource.setrlimit(resource.RLIMIT_CPU, (cost.cpu_s, cost.cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
