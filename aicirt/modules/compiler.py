"""The compiler process: checks, rewrites and compiles one module in a sandbox.

``python -m aicirt.modules.compiler ARTIFACT LIMITS PARENT [UID GID]`` reads the module from its standard
input and writes the artifact to the open file descriptor ARTIFACT; it can open no file itself. It prints a
line of JSON, ``{"info": ...}`` or ``{"error": [code, message, detail]}``. LIMITS is JSON of `Limits` and
`CompileLimits`. PARENT is the process id of the caller: the process ends when the caller ends. UID and GID
are the user that the process becomes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import resource
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aicirt import sandbox
from aicirt.contract.errors import AiciError, CompileLimitError, RuntimeFailure
from aicirt.contract.modules import DESCRIBED_NAMES, ControllerInfo, described_names
from aicirt.modules.compile import CompileLimits
from aicirt.settings import Limits
from aicirt.system.processes import become
from aicirt.system.resources import BACKGROUND_NICE, give_way
from aicirt.system.shortage import describe
from aicirt.wasm.engine import WasmEngine
from aicirt.wasm.module.check import ModuleReport, check
from aicirt.wasm.program import compile_module, serialize


def main(arguments: Sequence[str]) -> int:
    """Compiles the module and prints the answer. Returns the exit status."""
    print(json.dumps(_answer(*arguments)))
    return 0


def _answer(artifact: str, both: str, parent: str, *user: str) -> dict[str, Any]:
    if user:
        become(*map(int, user))
    sandbox.die_with(int(parent))
    give_way(BACKGROUND_NICE)
    limits, cost = json.loads(both)
    try:
        _limit(CompileLimits(**cost))
        engine = WasmEngine(Limits(**limits))
        sandbox.enter(sandbox.COMPILER)
        info = _compile(int(artifact), engine)
    except MemoryError:
        return {"error": CompileLimitError("compiling ran out of memory", limit="memory_bytes").to_wire()}
    except AiciError as error:
        return {"error": error.to_wire()}
    except OSError as error:
        return {
            "error": RuntimeFailure(f"the module cannot be compiled and stored: {describe(error)}").to_wire()
        }
    return {"info": info.to_wire()}


def _compile(artifact: int, engine: WasmEngine) -> ControllerInfo:
    wasm = sys.stdin.buffer.read()
    report = check(wasm, engine.limits)
    report.require()
    compiled = serialize(compile_module(engine, wasm))
    try:
        with os.fdopen(artifact, "wb") as file:
            file.write(compiled)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        problem = f"the module compiles to {len(compiled)} bytes of machine code, which exceeds the limit"
        raise CompileLimitError(problem, limit="artifact_bytes") from None
    info = _describe(hashlib.sha256(wasm).hexdigest(), report)
    info.compiled_size = len(compiled)
    info.compiled_sha256 = hashlib.sha256(compiled).hexdigest()
    return info


def _limit(cost: CompileLimits) -> None:
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + cost.memory_bytes, used + cost.memory_bytes))
    # the soft limit sends SIGXCPU, which identifies the cause; SIGKILL follows a second later
    resource.setrlimit(resource.RLIMIT_CPU, (cost.cpu_s, cost.cpu_s + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (cost.artifact_bytes, cost.artifact_bytes))


def _describe(module_id: str, report: ModuleReport) -> ControllerInfo:
    exports = [export.name for export in report.exports]
    return ControllerInfo(
        id=module_id,
        size=report.size,
        abi_version=report.abi_version or 0,
        has_init=report.has_init,
        has_init_prompt=report.has_init_prompt,
        has_pre=report.has_pre,
        has_post=report.has_post,
        initial_memory=report.initial_memory,
        exports=described_names(exports),
        imports=described_names([f"{i.module}.{i.name}" for i in report.imports]),
        more_exports=max(0, len(dict.fromkeys(exports)) - DESCRIBED_NAMES),
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
