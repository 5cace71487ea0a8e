"""The build of one controller: its output, and when it is built again."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import wasmtime

from lab.system.waiting import PATIENCE
from pyaici.toolchain import BuildError, Sdk, Toolchain, build_controller, build_library

from .conftest import MINIMAL, CountingToolchain, shared_cache

CXX = """
#include "aici.h"
#include "answer.hpp"
AICI_CONTROLLER
static aici_step_arg arg = {.size = sizeof(arg)};
static aici_mid_result result = {.size = sizeof(result)};
extern "C" AICI_EXPORT(aici_arg) aici_step_arg *aici_arg() { return &arg; }
extern "C" AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process() {
    result.verb = AICI_SAMPLE;
    result.row_kind = AICI_ROW_TOKEN;
    result.row = CALL;
    return &result;
}
"""

ZIG = """
const Arg = extern struct { size: u32, rest: [41]u32 };
const Mid = extern struct { size: u32, verb: u32 };
extern "aici" fn capability(id: u32) u32;
var arg: Arg = .{ .size = @sizeOf(Arg), .rest = @splat(0) };
var result: Mid = .{ .size = @sizeOf(Mid), .verb = 0 };
export fn aici_abi_v1() void {}
export fn aici_arg() *Arg { return &arg; }
export fn aici_mid_process() *Mid { result.verb = capability(1); return &result; }
"""

CONTRACT = {"memory", "aici_abi_v1", "aici_arg", "aici_mid_process"}


def exports(path: Path) -> set[str]:
    return {e.name for e in wasmtime.Module.from_file(wasmtime.Engine(), str(path)).exports}


def field(path: Path, index: int) -> int:
    """Runs ``aici_mid_process`` and returns the 32-bit field `index` of its result."""
    store = wasmtime.Store()
    linker = wasmtime.Linker(store.engine)
    store.set_wasi(wasmtime.WasiConfig())
    linker.define_wasi()
    i32 = wasmtime.ValType.i32()
    linker.define_func("aici", "capability", wasmtime.FuncType([i32], [i32]), lambda what: what + 4)
    instance = linker.instantiate(store, wasmtime.Module.from_file(store.engine, str(path)))
    names = instance.exports(store)
    if "_initialize" in exports(path):
        names["_initialize"](store)
    at = names["aici_mid_process"](store)
    return int.from_bytes(names["memory"].read(store, at + 4 * index, at + 4 * index + 4), "little")


def test_minimal_c_controller(c_source: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    built = build_controller(c_source, tmp_path / "out" / "minimal.wasm", tools=tools)
    assert built.path == tmp_path / "out" / "minimal.wasm"
    assert built.name == "minimal"
    assert exports(built.path) >= CONTRACT | {"_initialize"}
    assert built.size == built.path.stat().st_size < 5000
    assert tools.messages == [], "the headers compile without a warning"


def test_memory_is_small(c_source: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    """Zig's default stack would take 16 MiB in every instance."""
    built = build_controller(c_source, tmp_path / "minimal.wasm", tools=tools)
    module = wasmtime.Module.from_file(wasmtime.Engine(), str(built.path))
    memory = next(e.type for e in module.exports if e.name == "memory")
    assert isinstance(memory, wasmtime.MemoryType)
    assert memory.limits.min <= 2


@pytest.mark.parametrize(("call", "value"), [("answer()", 42), ("other()", 2), ("7", 7)])
def test_cxx_links_only_what_it_uses(
    call: str, value: int, tmp_path: Path, sdk: Sdk, tools: CountingToolchain
) -> None:
    source = tmp_path / "ctl.cpp"
    source.write_text(CXX.replace("CALL", call))
    built = build_controller(source, tmp_path / "ctl.wasm", sdk=sdk, tools=tools)
    assert exports(built.path) >= CONTRACT
    assert field(built.path, 3) == value
    assert (built.size > 3000) == (call == "other()"), "only other() needs std::string"


def test_zig_controller_is_built_and_rebuilt(tmp_path: Path, sdk: Sdk, tools: CountingToolchain) -> None:
    source = tmp_path / "ctl.zig"
    source.write_text(ZIG)
    sdk.zig_module.parent.mkdir()
    sdk.zig_module.write_text("")
    built = build_controller(source, tmp_path / "ctl.wasm", sdk=sdk, tools=tools)
    assert exports(built.path) >= CONTRACT
    assert field(built.path, 1) == 5
    assert not build_controller(source, tmp_path / "ctl.wasm", sdk=sdk, tools=tools).changed
    source.write_text(ZIG.replace("capability(1)", "capability(2)"))
    assert build_controller(source, tmp_path / "ctl.wasm", sdk=sdk, tools=tools).changed
    assert field(built.path, 1) == 6


def test_unchanged_source_runs_no_compiler(c_source: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    out = tmp_path / "minimal.wasm"
    assert build_controller(c_source, out, tools=tools).changed
    before = out.stat().st_mtime_ns
    tools.commands.clear()
    assert not build_controller(c_source, out, tools=tools).changed
    assert out.stat().st_mtime_ns == before
    out.unlink()
    assert build_controller(c_source, out, tools=tools).changed
    assert tools.commands == []


def test_change_of_any_input_builds_again(tmp_path: Path, sdk: Sdk, tools: CountingToolchain) -> None:
    """Changes a header in the source's folder, one outside it, and a source and a header of the SDK."""
    folder = tmp_path / "ctl"
    folder.mkdir()
    (tmp_path / "far.h").write_text("#define FAR 1\n")
    (folder / "near.h").write_text("#define NEAR 1\n")
    source = folder / "main.cpp"
    call = "FAR * 1000 + NEAR * 100 + answer()"
    text = CXX.replace("CALL", call).replace('"aici.h"', '"aici.h"\n#include "../far.h"\n#include "near.h"')
    out = tmp_path / "ctl.wasm"

    def built() -> int:
        build_controller(folder, out, sdk=sdk, tools=tools)
        return field(out, 3)

    source.write_text(text)
    assert built() == 1142
    (tmp_path / "far.h").write_text("#define FAR 2\n")
    assert built() == 2142
    (folder / "near.h").write_text("#define NEAR 2\n")
    assert built() == 2242
    (sdk.root / "src" / "answer.cpp").write_text("int answer() { return 43; }\n")
    tools.commands.clear()
    assert built() == 2243
    assert [w for w in tools.commands if "other.cpp" in w] == [], (
        "an SDK source that did not change is not compiled"
    )
    (sdk.include / "answer.hpp").write_text("#define answer() 44\n")
    assert built() == 2244
    (tmp_path / "far.h").write_text("#define FAR 1\n")
    (folder / "near.h").unlink()
    with pytest.raises(BuildError, match=r"near\.h"):
        built()


def test_prebuilt_sdk_library_is_used_if_it_matches_the_sources(
    tmp_path: Path, sdk: Sdk, tools: CountingToolchain
) -> None:
    sdk.libraries.mkdir()
    for made in build_library(sdk, tools):
        made.rename(sdk.libraries / made.name)
    source = tmp_path / "ctl.cpp"
    source.write_text(CXX.replace("CALL", "answer()"))
    tools.commands.clear()
    built = build_controller(source, tmp_path / "ctl.wasm", sdk=sdk, tools=tools)
    assert field(built.path, 3) == 42
    assert [word for word in tools.commands if "answer.cpp" in word] == []
    (sdk.root / "src" / "answer.cpp").write_text("int answer() { return 43; }\n")
    build_controller(source, tmp_path / "ctl.wasm", sdk=sdk, tools=tools)
    assert field(built.path, 3) == 43


def test_same_sources_give_the_same_bytes(tmp_path: Path, sdk: Sdk) -> None:
    """Uses two checkouts and two caches; `__FILE__` puts the file's name into the module."""
    modules = []
    for place in ("a", "much/longer/b"):
        folder = tmp_path / place / "ctl"
        folder.mkdir(parents=True)
        (folder / "main.c").write_text(
            MINIMAL + "AICI_EXPORT(where) const char *where(void) { return __FILE__; }\n"
        )
        cache = shared_cache(tmp_path / place / "cache")
        built = build_controller(folder, tmp_path / place / "ctl.wasm", sdk=sdk, tools=Toolchain(cache))
        modules.append(built.path.read_bytes())
    assert modules[0] == modules[1]
    assert b"main.c" in modules[0]
    assert str(tmp_path).encode() not in modules[0]


def test_compiler_error_is_readable(c_source: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    source = c_source / "main.c"
    source.write_text(MINIMAL + "int wrong(void) { return unknown_name; }\n")
    with pytest.raises(BuildError) as caught:
        build_controller(c_source, tmp_path / "out.wasm", tools=tools)
    line = source.read_text().count("\n")
    assert f"main.c:{line}:" in str(caught.value)
    assert "unknown_name" in str(caught.value)
    assert not (tmp_path / "out.wasm").exists()


def test_undefined_function_is_an_error(c_source: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    (c_source / "main.c").write_text(
        MINIMAL.replace("return &arg;", "extern int nowhere(void); nowhere(); return &arg;")
    )
    with pytest.raises(BuildError, match=r"linking minimal failed(.|\n)*nowhere"):
        build_controller(c_source, tmp_path / "out.wasm", tools=tools)


def test_warnings_are_shown(c_source: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    (c_source / "main.c").write_text(MINIMAL + "static int unused_thing(void) { return 1; }\n")
    build_controller(c_source, tmp_path / "out.wasm", tools=tools)
    assert any("unused_thing" in line for line in tools.messages)


def test_sources_that_are_not_a_controller_are_refused(tmp_path: Path, tools: CountingToolchain) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.txt").touch()
    (tmp_path / "mixed").mkdir()
    (tmp_path / "mixed" / "a.zig").touch()
    (tmp_path / "mixed" / "b.c").touch()
    (tmp_path / "lib.rs").touch()
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "a.zig").touch()
    (tmp_path / "many" / "b.zig").touch()
    out = tmp_path / "out.wasm"
    for source, words in [
        ("gone", "no such file"),
        ("empty", r"no source file \(\.c, \.cpp.*\), no Cargo\.toml and no asconfig\.json$"),
        ("text.txt", r"not a source file of a controller \([^;]*\)$"),
        ("lib.rs", "not a source file .*; in Rust and AssemblyScript, name the folder"),
        ("mixed", "mixes Zig"),
        ("many", r"no main\.zig to start from"),
    ]:
        with pytest.raises(BuildError, match=words):
            build_controller(tmp_path / source, out, tools=tools)
    with pytest.raises(BuildError, match="an empty list has no source"):
        build_controller([], out, tools=tools)


def test_parallel_builds_of_the_same_module(c_source: Path, tmp_path: Path, tools: CountingToolchain) -> None:
    """Processes that build the same module at the same time all succeed."""
    context = multiprocessing.get_context("spawn")
    children = [
        context.Process(target=_build_in_child, args=(c_source, tmp_path / f"{n}.wasm", tools.cache))
        for n in range(3)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(PATIENCE)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert len({(tmp_path / f"{n}.wasm").read_bytes() for n in range(3)}) == 1


def _build_in_child(source: Path, out: Path, cache: Path) -> None:
    build_controller(source, out, tools=Toolchain(cache))
