"""The build of a controller with an interpreter: which files are compiled, and missing sources."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyaici.build import (
    BuildError,
    MissingSources,
    Sdk,
    build_all,
    build_controller,
    controller_folders,
    find_sdk,
)
from pyaici.build.interpreters.sdist import Sdist
from tests.pyaici.build.conftest import MINIMAL, CountingToolchain
from tests.pyaici.build.test_controller import field

GLUE = """
#include <setjmp.h>
#include "aici.h"
#include "aici_library.h"
#include "engine.h"
#include "shared.h"
AICI_CONTROLLER
static aici_step_arg arg = {.size = sizeof(arg)};
static aici_mid_result result = {.size = sizeof(result), .verb = AICI_SAMPLE};
static jmp_buf place;
__attribute__((noinline)) static void leave(int value) { longjmp(place, value); }
AICI_EXPORT(aici_arg) aici_step_arg *aici_arg(void) { return &arg; }
AICI_EXPORT(aici_mid_process) aici_mid_result *aici_mid_process(void) {
    result.row = setjmp(place);
    if (result.row == 0) leave(answer());
    result.row_len = hello_library_length * 1000 + (uint8_t)hello_library[0];
    result.backtrack = shared(1);
    return &result;
}
"""


@pytest.fixture
def folder(thing: Sdist, tmp_path: Path) -> Path:
    """Creates a source tree with the glue code of the interpreter `thing` and the code that glue shares."""
    controllers = tmp_path / "tree" / "controllers"
    folder = controllers / "thingctrl"
    for name in ("port", "library"):
        (folder / name).mkdir(parents=True)
    shutil.copytree(find_sdk().include, controllers / "sdk" / "include")
    (folder / "interpreter.toml").write_text('interpreter = "thing"\nstack_kib = 32\n')
    (folder / "main.c").write_text(GLUE)
    (folder / "port" / "port.h").write_text("#define PORT 2\n")
    (folder / "library" / "hello.txt").write_text("été")
    (controllers / "script").mkdir()
    (controllers / "script" / "shared.h").write_text(
        '#ifdef __cplusplus\nextern "C"\n#endif\nint shared(int value);\n'
    )
    (controllers / "script" / "shared.cpp").write_text(
        '#include "shared.h"\nint shared(int value) { return value + 6; }\n'
    )
    return folder


@pytest.fixture
def build(folder: Path, sdk: Sdk, tmp_path: Path, tools: CountingToolchain) -> Callable[[], list[str]]:
    """Returns a function that builds the glue to ``out.wasm`` and returns the names of the compiled files."""

    def build() -> list[str]:
        tools.commands.clear()
        build_controller(folder, tmp_path / "out.wasm", sdk=sdk, tools=tools)
        return [Path(what.removeprefix("compiling ")).name for what in tools.commands if "compiling" in what]

    return build


def test_only_changed_files_are_compiled(
    folder: Path, build: Callable[[], list[str]], tmp_path: Path, tools: CountingToolchain
) -> None:
    out = tmp_path / "out.wasm"
    assert sorted(build()) == ["engine.c", "main.c", "setjmp.c", "shared.cpp"]
    assert (field(out, 3), field(out, 4), field(out, 8)) == (42, 5000 + 0xC3, 7)
    assert "compiling Thing, 10 to 30 s, once" in tools.messages
    assert build() == []
    (folder / "library" / "hello.txt").write_text("hi")
    assert sorted(build()) == ["main.c", "shared.cpp"]
    assert field(out, 4) == 2000 + ord("h")
    (folder.parent / "script" / "shared.h").write_text('extern "C" int shared(int);\n#define _8 1\n')
    with pytest.raises(BuildError, match=r"shared\.h"):
        build()  # the header is not valid C
    (folder.parent / "script" / "shared.h").write_text("int shared(int);\n")
    (folder.parent / "script" / "shared.cpp").write_text('extern "C" int shared(int v) { return v + 7; }\n')
    assert sorted(build()) == ["main.c", "shared.cpp"]
    assert field(out, 8) == 8
    (folder / "port" / "port.h").write_text("#define PORT 3\n")
    assert "engine.c" in build()
    assert field(out, 3) == 43


def test_subfolders_other_than_the_port_are_compiled(folder: Path, build: Callable[[], list[str]]) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "twice.c").write_text('#include "../twice.h"\nint twice(int x) { return 2 * x; }\n')
    (folder / "twice.h").write_text("int twice(int x);\n")
    (folder / "port" / "unused.c").write_text("#error not a source of the glue\n")
    assert "twice.c" in build()


def test_shared_folder_is_not_a_controller(folder: Path) -> None:
    assert [path.name for path in controller_folders(folder.parents[1])] == ["thingctrl"]


def test_other_controllers_are_built_without_the_interpreters_sources(
    folder: Path, sdists: Path, thing: Sdist, tmp_path: Path, tools: CountingToolchain
) -> None:
    (sdists / thing.file_name).unlink()
    new = CountingToolchain(tmp_path / "new")
    with pytest.raises(MissingSources, match="the sources of Thing are missing"):
        build_controller(folder, tmp_path / "out.wasm", tools=new)
    assert not new.commands, "nothing is compiled for a controller that lacks its sources"
    other = folder.parent / "zother"
    other.mkdir()
    (other / "main.c").write_text(MINIMAL)
    tools.messages.clear()
    built = build_all(tmp_path / "out", root=folder.parents[1], tools=tools)
    assert [one.name for one in built] == ["zother"]
    (line,) = tools.messages
    assert line.startswith("thingctrl is not built: the sources of Thing are missing: AICI_SDISTS names")
    assert "\n" not in line


def test_library_files_with_bad_names_or_encoding_are_refused(
    folder: Path, build: Callable[[], list[str]]
) -> None:
    (folder / "library" / "not-a-name.txt").touch()
    with pytest.raises(BuildError, match=r"not-a-name\.txt: its name must be a C identifier"):
        build()
    (folder / "library" / "not-a-name.txt").rename(folder / "library" / "binary.txt")
    (folder / "library" / "binary.txt").write_bytes(b"\xff")
    with pytest.raises(BuildError, match=r"binary\.txt is not UTF-8"):
        build()


def test_glue_without_a_source_file_is_refused(folder: Path, build: Callable[[], list[str]]) -> None:
    (folder / "main.c").unlink()
    with pytest.raises(BuildError, match=r"thingctrl has no source file \(\.c, \.cpp"):
        build()
