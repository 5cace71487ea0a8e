"""Controllers on an interpreter: the manifest, which files are compiled, the embedded library, notices."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pyaici.toolchain import (
    BuildError,
    MissingSources,
    Sdk,
    Toolchain,
    build_all,
    build_controller,
    controller_folders,
    find_sdk,
    notices,
)
from pyaici.toolchain.interpreters import (
    HEADER,
    LANGUAGES,
    MANIFEST,
    Manifest,
    is_interpreter,
    library_files,
    write_library,
)
from pyaici.toolchain.sdist import Sdist
from tests.pyaici.toolchain.conftest import MINIMAL, CountingToolchain
from tests.pyaici.toolchain.test_controller import field


def test_manifest_names_an_interpreter_and_a_stack_size(tmp_path: Path) -> None:
    assert not is_interpreter(tmp_path)
    (tmp_path / MANIFEST).write_text('interpreter = "quickjs"\nstack_kib = 128\n')
    assert is_interpreter(tmp_path)
    assert Manifest.read(tmp_path, list(LANGUAGES)) == Manifest("quickjs", 128)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stack_kib = 64", "interpreter must be one of micropython, quickjs, not None"),
        ('interpreter = "perl"\nstack_kib = 64', "one of micropython, quickjs, not 'perl'"),
        ('interpreter = "quickjs"', "stack_kib must be a number of KiB, 16 to 4096, not None"),
        ('interpreter = "quickjs"\nstack_kib = 8', "16 to 4096, not 8"),
        (
            'interpreter = "quickjs"\nstack_kib = 64\nheap = 1',
            r"unknown entries: heap \(the entries are interpreter and stack_kib\)",
        ),
        ("interpreter =", r"interpreter\.toml: Invalid value"),
    ],
)
def test_invalid_manifests_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(BuildError, match=message):
        Manifest.read(tmp_path, list(LANGUAGES))


CONTROLLERS = find_sdk().root.parent
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


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "library").mkdir()
    return tmp_path


def written(tree: Path) -> tuple[dict[str, bytes], list[tuple[str, str, int]]]:
    """Returns the arrays of the header by name, and its table as rows of name, array and length."""
    write_library(tree, tree)
    text = (tree / HEADER).read_text()
    arrays = {
        name: bytes(int(number) % 256 for number in re.findall(r"-?\d+", numbers))
        for name, numbers in re.findall(r"static const char (\w+)\[\] = \{([^}]*)\};", text)
    }
    lengths = {name: int(n) for name, n in re.findall(r"enum \{ (\w+) = (\d+) \};", text)}
    table = re.findall(r'\{"([^"]+)", (\w+), (\w+)\}', text)
    assert text.rstrip().endswith("{0, 0, 0},\n};"), "glue code reads the table up to this entry"
    return arrays, [(name, array, lengths[length]) for name, array, length in table]


def test_library_files_are_sorted_and_exclude_subfolders(tree: Path) -> None:
    library = tree / "library"
    (library / "deeper").mkdir()
    for name in ("b.py", "a.py", "deeper/c.py"):
        (library / name).write_text("")
    assert library_files(tree) == [library / "a.py", library / "b.py"]


def test_folder_without_a_library_has_no_files(tmp_path: Path) -> None:
    assert library_files(tmp_path) == []
    assert written(tmp_path) == ({}, [])


def test_files_are_embedded_byte_for_byte(tree: Path) -> None:
    contents = {
        "long.py": bytes(range(1, 128)) * 3,
        "empty.py": b"",
        "signed.py": "Grüße, \u20ac\n".encode(),
        "quotes.py": b'"\\\n\x00"}; end',
    }
    for name, content in contents.items():
        (tree / "library" / name).write_bytes(content)
    arrays, table = written(tree)
    assert [name for name, _, _ in table] == sorted(contents)
    for name, array, length in table:
        assert arrays[array] == contents[name] + b"\0"
        assert length == len(contents[name])


def test_bytes_are_written_as_signed_chars(tree: Path) -> None:
    (tree / "library" / "a.py").write_text("\u00ff")
    write_library(tree, tree)
    assert "-61, -65, 0," in (tree / HEADER).read_text()


@pytest.mark.parametrize("name", ["two-words.py", "1.py", "sch\u00f6n.py", "a.b.py"])
def test_file_name_that_is_not_a_c_identifier_is_refused(tree: Path, name: str) -> None:
    (tree / "library" / name).write_text("")
    with pytest.raises(BuildError, match="only letters, digits and _"):
        write_library(tree, tree)


def test_file_that_is_not_utf8_is_refused(tree: Path) -> None:
    (tree / "library" / "a.py").write_bytes(b"\xff")
    with pytest.raises(BuildError, match=r"a\.py is not UTF-8"):
        write_library(tree, tree)


@pytest.mark.parametrize(
    ("folder", "name", "owners"),
    [
        ("pyctrl", "MicroPython.txt", ["2013, 2014 Damien P. George", "2014-2018 Paul Sokolovsky"]),
        ("jsctrl", "QuickJS-ng.txt", ["2017-2026 Fabrice Bellard", "2023-2026 Saúl Ibarra Corretgé"]),
    ],
)
def test_notice_has_the_copyright_owners_and_the_permission(
    folder: str, name: str, owners: list[str], network: Path
) -> None:
    folders = [CONTROLLERS / folder, CONTROLLERS / "yesno"]
    made = notices(folders, Toolchain(network))
    assert list(made) == [name]
    lines = made[name].read_text().splitlines()
    for owner in owners:
        assert f"Copyright (c) {owner}" in lines
    text = " ".join(lines)
    assert "Permission is hereby granted, free of charge, to any person obtaining a copy of this" in text
    assert text.rstrip().endswith("OR OTHER DEALINGS IN THE SOFTWARE.")
    assert "*" not in text
