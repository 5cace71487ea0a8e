from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from wasmtime import wat2wasm

from aicirt.contract.errors import AiciError, CompileLimitError, ModuleError, RuntimeFailure
from aicirt.modules.compile import CompileLimits, compile_in_child, compile_in_child_async
from aicirt.wasm import Export, Instance, Limits, Linker, Program, WasmEngine
from lab.system.waiting import PATIENCE

GOOD = """(module (memory (export "memory") 1) (func (export "aici_abi_v1"))
  (func (export "aici_arg") (result i32) (i32.const 16)) {}
  (func (export "aici_mid_process") (result i32) (i32.const 42)))"""
#: takes seconds to compile: one huge function
BOMB = GOOD.format(f"(func (param i32) (result i32) (local.get 0) {'(i32.const 7) i32.add ' * 400_000})")


def _write(directory: Path, wat: str) -> tuple[Path, Path]:
    path = directory / "module.wasm"
    path.write_bytes(bytes(wat2wasm(wat)))
    return path, directory / "module.compiled"


def test_a_compiled_module_runs_in_another_process(tmp_path: Path) -> None:
    wasm, artifact = _write(tmp_path, GOOD.format(""))
    info = compile_in_child(wasm, artifact)
    assert info.size == wasm.stat().st_size and info.compiled_size == artifact.stat().st_size
    assert (info.abi_version, info.initial_memory, info.has_pre) == (1, 65536, False)
    engine = WasmEngine()
    linker = Linker(engine, [])
    program = Program.from_file(linker, artifact)
    guest = Instance(program)
    assert guest.call(Export.MID) == 42
    for part in (guest, program, linker, engine):
        part.close()
    assert artifact.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not wasm at all", "not WebAssembly"),
        (bytes(wat2wasm(GOOD.format('(func (export "_start"))'))), "reactor"),
        (bytes(wat2wasm(GOOD.format("(func (result i32))"))), "does not compile"),
        (bytes(wat2wasm(GOOD.format("")))[:-3], "truncated"),
    ],
)
def test_refused_module_gives_a_reason_and_leaves_no_artifact(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    wasm, artifact = tmp_path / "m.wasm", tmp_path / "m.compiled"
    wasm.write_bytes(content)
    with pytest.raises(ModuleError, match=reason):
        compile_in_child(wasm, artifact)
    assert not artifact.exists()


def test_limits_reach_the_child(tmp_path: Path) -> None:
    wasm, artifact = _write(tmp_path, GOOD.format(""))
    with pytest.raises(ModuleError, match="more than the limit of 1000"):
        compile_in_child(wasm, artifact, Limits(memory_bytes=1000))


def test_too_much_cpu_time_is_an_error(tmp_path: Path) -> None:
    wasm, artifact = _write(tmp_path, BOMB)
    with pytest.raises(CompileLimitError, match="1 s of CPU time"):
        compile_in_child(wasm, artifact, cost=CompileLimits(cpu_s=1))
    assert not artifact.exists()


def test_too_much_memory_is_an_error(tmp_path: Path) -> None:
    wasm, artifact = _write(tmp_path, BOMB)
    with pytest.raises(CompileLimitError) as caught:
        compile_in_child(wasm, artifact, cost=CompileLimits(memory_bytes=64 << 20))
    assert caught.value.detail["limit"] == "memory_bytes"


def test_too_much_time_is_an_error_and_ends_the_child(tmp_path: Path) -> None:
    wasm, artifact = _write(tmp_path, BOMB)
    for compile_it in (
        lambda cost: compile_in_child(wasm, artifact, cost=cost),
        lambda cost: asyncio.run(compile_in_child_async(wasm, artifact, cost=cost)),
    ):
        with pytest.raises(CompileLimitError, match=r"0\.5 s"):
            compile_it(CompileLimits(silence_s=0.5))
        assert _children() == []


def test_cancelling_ends_the_child(tmp_path: Path) -> None:
    wasm, artifact = _write(tmp_path, BOMB)

    async def cancel() -> None:
        task = asyncio.create_task(compile_in_child_async(wasm, artifact))
        async with asyncio.timeout(PATIENCE):
            while not _children():
                await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert _children() == []


def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    wasm, artifact = _write(tmp_path, BOMB)
    code = f"""
from pathlib import Path
from aicirt.modules.compile import compile_in_child
compile_in_child(Path({str(wasm)!r}), Path({str(artifact)!r}))
"""
    path = os.pathsep.join(sys.path)
    parent = subprocess.Popen([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path})
    deadline = time.monotonic() + PATIENCE
    while not (children := _children(parent.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    parent.kill()  # perhaps before the child has asked to die with its parent
    parent.wait()
    while any(Path(f"/proc/{pid}/stat").exists() and _state(pid) != "Z" for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_async_compilation_gives_the_same_description(tmp_path: Path) -> None:
    wasm, artifact = _write(tmp_path, GOOD.format(""))
    one = asyncio.run(compile_in_child_async(wasm, artifact))
    artifact.unlink()
    assert compile_in_child(wasm, artifact) == one
    wasm.write_bytes(b"no")
    with pytest.raises(ModuleError, match="not WebAssembly"):
        asyncio.run(compile_in_child_async(wasm, tmp_path / "other"))


def test_a_compiler_that_breaks_is_a_runtime_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wasm, artifact = _write(tmp_path, GOOD.format(""))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeFailure, match="status 1"):
        compile_in_child(wasm, artifact)
    monkeypatch.undo()
    with pytest.raises(AiciError, match="cannot be compiled"):
        compile_in_child(tmp_path / "missing.wasm", artifact)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "answer",
    ["5", "[]", "{}", '{"info": 3}', '{"info": {"compiled_size": "x"}}', '{"error": 1}', "[" * 100_000],
)
def test_invalid_answer_of_the_compiler_is_a_runtime_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    wasm, artifact = _write(tmp_path, GOOD.format(""))
    _fake_compiler(tmp_path, monkeypatch, answer)
    with pytest.raises(RuntimeFailure, match="the compiler process failed"):
        compile_in_child(wasm, artifact)
    assert not artifact.exists()


def test_compiler_cannot_claim_to_have_compiled_another_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise clients of the other module would run this compiler's machine code."""
    wasm, artifact = _write(tmp_path, GOOD.format(""))
    info = compile_in_child(wasm, artifact).to_wire()
    artifact.unlink()
    lie = {**info, "id": "0" * 64, "size": 1, "tags": ["a"], "owners": ["b"], "interpreter": "c"}
    _fake_compiler(tmp_path, monkeypatch, json.dumps({"info": lie}))
    assert compile_in_child(wasm, artifact).to_wire() == info


def _fake_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    """Replaces the compiler by a program that only prints `answer`."""
    (folder / "answer").write_text(answer)
    program = folder / "program"
    program.write_text(f"#!/bin/sh\ncat {folder}/answer\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))


def test_too_much_machine_code_is_an_error(tmp_path: Path) -> None:
    wasm, artifact = _write(tmp_path, GOOD.format("(func nop)" * 10_000))
    with pytest.raises(CompileLimitError, match="bytes of machine code") as caught:
        compile_in_child(wasm, artifact, cost=CompileLimits(artifact_bytes=64 << 10))
    assert caught.value.detail["limit"] == "artifact_bytes"
    assert not artifact.exists()


def _children(pid: int | None = None) -> list[int]:
    """Returns the living children that compile. Other tests in this process may have other children."""
    pid = pid or os.getpid()
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has just ended
            found += map(int, (task / "children").read_text(encoding="ascii").split())
    return [child for child in found if _state(child) != "Z" and _compiles(child)]


def _compiles(pid: int) -> bool:
    try:
        return b"aicirt.modules.compile" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
