"""Links compile only what the module needs, to the same objects as Zig's own libraries."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from pyaici.toolchain import Sdk, Toolchain, build_controller, build_library, find_sdk, flags
from pyaici.toolchain.native import Libraries, link
from pyaici.toolchain.objects import Setting, compile_all
from pyaici.toolchain.system import Unit
from tests.thorough import also, thorough

from .conftest import CountingToolchain, shared_cache
from .test_controller import CXX, field

#: compilers that the first controller of README.md may start on an empty cache
MAX_COMPILERS = 80
REGEX = find_sdk().root.parent / "regex" / "regex.cpp"


@pytest.fixture(scope="module")
def regex(tmp_path_factory: pytest.TempPathFactory) -> tuple[Libraries, list[Unit], Path]:
    """Links the controller `regex` with the machine's cache; returns what it has asked for and needs."""
    tools, folder = Toolchain(), tmp_path_factory.mktemp("regex")
    libraries, made = Libraries(find_sdk(), tools), folder / "regex.wasm"
    objects, _ = compile_all(tools, [REGEX], folder, Setting.of(find_sdk()))
    return libraries, link(libraries, tools, objects, made, "regex"), made


def test_main_job_starts_few_compilers(regex: tuple[Libraries, list[Unit], Path]) -> None:
    """Counts what an empty cache would compile: the controller, two headers, and all units asked for."""
    libraries, needed, _ = regex
    assert len(libraries.units) + 3 <= MAX_COMPILERS
    assert len(needed) > 20
    assert len(libraries.units) - len(needed) <= 4, "sources that were compiled in vain"
    assert not [unit for unit in needed if "stdio" in unit.source.parts], "dropped functions were compiled"


# test_main_job_starts_few_compilers counts the same for `regex`, without building anything
@pytest.mark.thorough
def test_few_sources_are_compiled_in_vain(tmp_path: Path) -> None:
    """The controller `extract` needs most of the SDK, which the build finds by searching its texts."""
    tools = Toolchain()
    libraries = Libraries(find_sdk(), tools)
    extract = REGEX.parent.parent / "extract" / "extract.cpp"
    objects, _ = compile_all(tools, [extract], tmp_path, Setting.of(find_sdk()))
    needed = link(libraries, tools, objects, tmp_path / "extract.wasm", "extract")
    assert len([unit for unit in needed if unit in libraries.sdk_units]) > 40
    assert len(libraries.units) - len(needed) <= len(needed) / 10


def test_empty_cache_starts_one_process_for_each_source(tmp_path: Path, c_source: Path) -> None:
    """Puts a program in the place of Zig that counts its starts, children of Zig included."""
    tools = CountingToolchain(tmp_path / "cache")
    log = tmp_path / "log"
    stand_in = tmp_path / "zig" / "zig"
    stand_in.parent.mkdir()
    (stand_in.parent / "lib").symlink_to(tools.zig.parent / "lib")
    stand_in.write_text(f'#!/bin/sh\necho "$1" >> {log}\nexec {tools.zig} "$@"\n')
    stand_in.chmod(0o755)
    tools.zig = stand_in
    source = c_source / "main.c"
    text = source.read_text().replace("return &arg;", "arg.size += strlen((char *)&arg); return &arg;")
    source.write_text("#include <string.h>\n" + text)
    build_controller(c_source, tmp_path / "out.wasm", tools=tools)
    compilers = [word for word in log.read_text().split() if word not in ("wasm-ld", "version")]
    assert set(compilers) == {"cc", "clang", "build-obj"}
    assert len(compilers) <= 5
    assert {path.name for path in tools.cache.iterdir()} == {"build", "system"}, "Zig's own cache is kept"


def test_module_does_not_depend_on_what_the_cache_has(tmp_path: Path, sdk: Sdk) -> None:
    """The second build finds all objects, the first only those that it needs."""
    source = tmp_path / "ctl.cpp"
    source.write_text(CXX.replace("CALL", "other()"))
    modules = []
    for name in ("first", "second"):
        tools = CountingToolchain(shared_cache(tmp_path / name))
        if name == "second":
            build_library(sdk, tools)
        built = build_controller(source, tmp_path / f"{name}.wasm", sdk=sdk, tools=tools)
        modules.append(built.path.read_bytes())
    assert modules[0] == modules[1]


def test_second_controller_compiles_only_its_own_source(
    tmp_path: Path, sdk: Sdk, tools: CountingToolchain
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ctl.cpp").write_text(CXX.replace("CALL", "other()") + f"int {name};\n")
    build_controller(tmp_path / "one", tmp_path / "one.wasm", sdk=sdk, tools=tools)
    tools.commands.clear()
    built = build_controller(tmp_path / "two", tmp_path / "two.wasm", sdk=sdk, tools=tools)
    assert tools.commands == [f"compiling {tmp_path / 'two' / 'ctl.cpp'}"]
    assert field(built.path, 3) == 2


def test_unneeded_sources_are_not_compiled(tmp_path: Path, sdk: Sdk, tools: CountingToolchain) -> None:
    (sdk.root / "src" / "broken.cpp").write_text("#error nobody needs this\n")
    source = tmp_path / "ctl.cpp"
    source.write_text(CXX.replace("CALL", "answer()"))
    built = build_controller(source, tmp_path / "ctl.wasm", sdk=sdk, tools=tools)
    assert field(built.path, 3) == 42
    assert not [command for command in tools.commands if "other.cpp" in command]


@pytest.mark.parametrize(
    ("header", "expression"),
    [
        ("iostream", "std::cout << text << std::endl"),
        ("cmath", "number = int(std::lgamma(text.size()) + std::pow(text.size(), 0.3))"),
        *also(
            ("sstream", "std::istringstream{std::string(text)} >> number"),
            ("random", "number = int(std::mt19937(text.size())())"),
            ("regex", 'number = std::regex_match(std::string(text), std::regex("a+"))'),
            ("ctime", "number = int(std::time(nullptr)) + std::localtime(nullptr)->tm_year"),
        ),
    ],
)
def test_parts_of_the_standard_library_are_found(tmp_path: Path, header: str, expression: str) -> None:
    source = tmp_path / "main.cpp"
    source.write_text(
        f"#include <{header}>\n#include <string>\n"
        + CXX.replace('#include "answer.hpp"', "").replace("CALL", "0")
        + f"""
extern "C" __attribute__((export_name("used"))) int used(const char* argument) {{
  std::string_view text = argument;
  int number = 0;
  {expression};
  return number;
}}
"""
    )
    assert b"\x04used" in build_controller(source, tmp_path / "out.wasm").path.read_bytes()


def test_names_that_sources_hide_behind_macros_are_found(tmp_path: Path, tools: CountingToolchain) -> None:
    """musl spells some names with macros, and defines others in files of other names."""
    libraries = Libraries(find_sdk(), tools)
    wanted = {"__tre_mem_new_impl": "tre-mem.c", "regfree": "regcomp.c", "__cxa_atexit": "atexit.c"}
    found = libraries.defining(wanted, cxx=True)
    assert {symbol: unit.source.name for symbol, unit in found.items()} == wanted


@pytest.mark.skipif(not thorough(), reason="builds all of libc and libc++: test.sh --thorough")
def test_modules_are_no_larger_than_with_all_of_the_libraries(
    regex: tuple[Libraries, list[Unit], Path], tmp_path: Path
) -> None:
    """Links `regex` with the libraries that Zig builds itself, and compares their objects with ours."""
    libraries, needed, module = regex
    tools = Toolchain()
    cache = tmp_path / "zig"
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
    objects, _ = compile_all(tools, [REGEX], tmp_path, Setting.of(find_sdk()))
    archive = tmp_path / "sdk.a"
    tools.run(["ar", "rcsD", archive, *build_library(find_sdk(), tools)], "archiving")
    whole = tmp_path / "whole.wasm"
    options = ["-s", "-mexec-model=reactor", f"-Wl,-z,stack-size={flags.STACK_BYTES}", "-Wl,--gc-sections"]
    command = [tools.zig, "c++", *flags.TARGET, *options, *objects, archive, "-o", whole]
    subprocess.run(list(map(str, command)), env=environment, check=True)
    assert module.stat().st_size <= whole.stat().st_size
    compared = 0
    for unit, made in zip(needed, libraries.compile(needed), strict=True):
        if unit.library in ("start", "libc", "libc++", "libc++abi"):
            theirs = [path.read_bytes() for path in cache.glob(f"o/*/{unit.source.stem}.o")]
            assert made is not None and made.read_bytes() in theirs
            compared += 1
    assert compared >= 3
