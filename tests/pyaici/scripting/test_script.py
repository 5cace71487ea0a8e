"""Script files, the values that scripts receive, and errors about scripts that cannot run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from aicirt.contract.errors import ControllerFailed, UnknownControllerError
from aicirt.contract.modules import script_value
from pyaici import bundled
from pyaici.bundled import JAVASCRIPT, PYTHON, find_controller, language_of
from pyaici.scripting import script as scripts
from pyaici.scripting.script import InterpreterMissingError, ScriptFileError, interpreter_file, read_script
from pyaici.testing import Playground


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_file_ending_determines_the_language() -> None:
    assert language_of("a.py") is PYTHON
    assert language_of(Path("deep/a.JS")) is JAVASCRIPT
    assert language_of("a.mjs") is JAVASCRIPT
    for other in (None, "", "py", "a.wasm", "none", "a.py/", "a.pyc"):
        assert language_of(other) is (PYTHON if other == "a.py/" else None)


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        (None, None),
        ("", ""),
        ("42", 42),
        ('"42"', "42"),
        ("[1, 2.5, null]", [1, 2.5, None]),
        ('{"a": {"b": true}}', {"a": {"b": True}}),
        ("a word", "a word"),
        ("NaN", "NaN"),
        ("[Infinity]", "[Infinity]"),
        ("{not JSON", "{not JSON"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_argument_text_is_parsed_as_json_or_passed_as_text(text: str | None, value: object) -> None:
    assert script_value(text) == value


def test_source_is_read_unchanged_except_for_the_byte_order_mark() -> None:
    source = 'print("ä\\n\\u2028")\r\n# "quoted" \\ \U0001f600\n'
    Path("a.py").write_bytes(b"\xef\xbb\xbf" + source.encode())
    script = read_script("a.py")
    assert (script.name, script.language, script.source) == ("a.py", PYTHON, source)
    assert json.loads(script.argument([1])) == {"script": source, "name": "a.py", "arg": [1]}
    assert script.argument().startswith("{")


def refusal(name: str) -> str:
    with pytest.raises(ScriptFileError) as caught:
        read_script(name)
    return str(caught.value)


def test_invalid_script_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal("gone.py") == "there is no file gone.py"
    Path("story.py").touch()
    assert refusal("stroy.py") == "there is no file stroy.py: did you mean story.py?"
    assert refusal("nowhere/a.js") == "there is no file nowhere/a.js"
    Path("folder.py").mkdir()
    assert refusal("folder.py") == "folder.py is a folder, not a script"
    Path("loop.js").symlink_to("loop.js")
    assert refusal("loop.js").startswith("cannot read loop.js: ")
    Path("latin.py").write_bytes("a = 1\nb = 'é'\n".encode("latin-1"))
    assert refusal("latin.py") == "latin.py is not UTF-8: byte 11, in line 2; save it as UTF-8"
    monkeypatch.setattr(scripts, "MAX_SOURCE", 8)
    Path("long.js").write_text("12345678")
    assert read_script("long.js").source == "12345678"
    Path("long.js").write_text("123456789")
    assert refusal("long.js").startswith("long.js is too long: a script has at most 8 bytes")
    assert refusal("a.txt") == "a.txt is not a script: the name of a script ends with one of .py, .js, .mjs"


def test_missing_interpreter_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    with pytest.raises(InterpreterMissingError) as caught:
        interpreter_file(JAVASCRIPT)
    assert "scripts in JavaScript cannot be run: the controller jsctrl was not built" in str(caught.value)
    assert "with network, python -m pyaici.toolchain" in str(caught.value)


def test_script_is_not_accepted_as_a_module() -> None:
    Path("a.py").write_text("x = 1\n")
    with pytest.raises(UnknownControllerError, match=r"a\.py is a script.*aici run a\.py"):
        find_controller("a.py")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("a.py", "from aici import *\nasync def main():\n    await force(arg['word'] + '.')\n"),
        (
            "deep/a.mjs",
            "import { force, arg } from \"aici\";\nexport async function main() { force(arg.word + '.'); }\n",
        ),
    ],
)
def test_script_runs_and_its_errors_name_the_file(name: str, source: str) -> None:
    Path("deep").mkdir()
    Path(name).write_text(source)
    script = read_script(name)
    module = interpreter_file(script.language)
    with Playground() as playground:
        assert playground.play(module, arg=script.argument({"word": "Tür"})).text == "Tür."
        with pytest.raises(ControllerFailed) as failed:
            playground.play(module, arg=script.argument())
    assert re.search(rf"TypeError(.|\n)*{name}|{name}(.|\n)*TypeError", str(failed.value))


def test_a_command_builds_what_a_source_tree_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    assert bundled.find_controller("choice") == tmp_path / "choice.wasm"
    assert (tmp_path / "choice.wasm").read_bytes()[:4] == b"\0asm"
    assert capsys.readouterr().err == "building the controller choice, once ...\n"
    assert bundled.find_controller("choice").is_file() and not capsys.readouterr().err
    monkeypatch.setenv("AICI_SDISTS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UnknownControllerError, match="the controller pyctrl cannot be built: the sources of"):
        bundled.build_missing("pyctrl")
