"""Loading of llama.cpp: the tested version is accepted, everything else is refused with the cure."""

from __future__ import annotations

import ctypes
import importlib.metadata
from pathlib import Path

import pytest

from pyaici.engines.llama import library
from pyaici.engines.llama.library import ContextParams, Library, LibraryError, ModelParams, load_library
from pyaici.toolchain.zig import Toolchain


def compile_library(folder: Path, source: str) -> Path:
    """Compiles a shared library for this machine, which stands in for another build of llama.cpp."""
    import subprocess
    import sys

    file, out = folder / "other.c", folder / "libother.so"
    file.write_text(source)
    subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", "-shared", "-fPIC", "-O1", str(file), "-o", str(out)],
        check=True,
        env={**__import__("os").environ, "ZIG_GLOBAL_CACHE_DIR": str(Toolchain().cache / "zig-host")},
    )
    return out


def stand_in(context_bytes: int = ctypes.sizeof(ContextParams), **changed: int) -> str:
    """Returns the source of a library with all functions, whose structs have these sizes and defaults."""
    functions = []
    for line in library._SIGNATURES.split():
        name = line.split(":")[0]
        if name not in ("model_default_params", "context_default_params"):
            functions.append(f"long llama_{name}() {{ return 0; }}")

    def struct(kind: type[ctypes.Structure], size: int, defaults: dict[str, object]) -> str:
        value = kind()
        for key, default in {**defaults, **changed}.items():
            if hasattr(value, key):
                setattr(value, key, default)
        data = (bytes(value) + bytes(256))[:size]
        return ",".join(map(str, data))

    for name, kind, size, defaults in (
        ("model", ModelParams, 78, library._MODEL_DEFAULTS),
        ("context", ContextParams, context_bytes, library._CONTEXT_DEFAULTS),
    ):
        functions.append(
            f"struct {name} {{ unsigned char bytes[{size}]; }};"
            f"struct {name} llama_{name}_default_params() {{"
            f" struct {name} r = {{{{{struct(kind, size, dict(defaults))}}}}}; return r; }}"
        )
    return "\n".join(functions)


def test_tested_package_is_loaded_once() -> None:
    found = load_library()
    assert found is load_library()
    assert found.path.name == "xllamacpp.abi3.so" and found.path.is_file()


def test_library_with_the_same_layout_is_accepted(tmp_path: Path) -> None:
    assert Library(compile_library(tmp_path, stand_in())).path.name == "libother.so"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context_bytes": 176}, "the struct has 176 bytes instead of 168"),
        ({"context_bytes": 160}, "ctx_other is|the struct has 160 bytes"),
        ({"n_batch": 99}, "n_batch is 99"),
        ({"kv_unified": 1}, "kv_unified is True"),
        ({"n_gpu_layers": 7}, "n_gpu_layers is 7"),
    ],
    ids=str,
)
def test_library_with_another_layout_is_refused(tmp_path: Path, options: dict[str, int], words: str) -> None:
    other = compile_library(tmp_path, stand_in(**options))
    with pytest.raises(LibraryError, match=words) as caught:
        Library(other)
    assert "pip install xllamacpp==" in str(caught.value)


def test_library_without_the_functions_is_refused(tmp_path: Path) -> None:
    other = compile_library(tmp_path, "int llama_something() { return 1; }")
    with pytest.raises(LibraryError, match="has no function llama_backend_init"):
        Library(other)


def test_missing_and_foreign_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LibraryError, match=r"there is no llama\.cpp library"):
        load_library(tmp_path / "libllama.so")
    text = tmp_path / "libtext.so"
    text.write_text("no library")
    with pytest.raises(LibraryError, match="cannot load"):
        load_library(text)


def test_other_versions_of_the_package_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    load_library.cache_clear()
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2020.1.1")
    with pytest.raises(LibraryError, match=r"xllamacpp 2020.1.1 is not a version .*pip install xllamacpp=="):
        load_library()


def test_missing_package_and_old_processors_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    load_library.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(library, "PACKAGE", "no_such_package")
        with pytest.raises(LibraryError, match=r"scripts/setup\.sh llama"):
            load_library()
    monkeypatch.setattr(library, "_CPU_FLAGS", ("avx2", "no_such_flag"))
    with pytest.raises(LibraryError, match=r"this processor lacks .*no_such_flag.*--llama-library"):
        load_library()
