"""Commands that are given a script instead of a controller."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyaici import bundled
from pyaici.bundled import controller_in
from pyaici.cli.__main__ import main
from pyaici.cli.new import SCRIPTS
from pyaici.client.control import Daemon
from pyaici.engines.hf.program import main as run_hf
from pyaici.engines.options import controller_file, given_argument, read_request
from pyaici.engines.vllm.program import main as run_vllm
from pyaici.models import default_model_path
from pyaici.testing import Playground, write_recording
from pyaici.testing.playground import PATIENT
from tests.pyaici.cli.test_remote import RUN
from tests.pyaici.scripted_server import answering, refusal

SCRIPT = """
from aici import *
async def main():
    await force("It is ")
    number = await gen(regex="[0-9]+", max_tokens=2)
    print("number", number, arg)
    no_such_name
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """The daemon that the commands connect to."""
    with Daemon(workers=1, limits=PATIENT) as daemon:
        yield daemon


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("AICI_SERVER", "AICI_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AICI_SOCKET", str(daemon.socket_path))
    Path("script.py").write_text(SCRIPT)


def options(controller: str, arg: str | None) -> argparse.Namespace:
    numbers = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "typical_p": 1.0}
    numbers |= {"top_n_sigma": 0.0, "seed": None, "n": 1, "max_tokens": 9}
    return argparse.Namespace(controller=controller, arg=arg, prompt="x", **numbers)


def test_argument_of_a_script_contains_its_source() -> None:
    for arg, value in ((None, None), ("[1]", [1]), ("word", "word")):
        asked = options("script.py", arg)
        request = read_request(asked)
        assert json.loads(request.arg) == {"script": SCRIPT, "name": "script.py", "arg": value}
        assert given_argument(asked, request) == request.arg
    assert controller_file("script.py").name == "pyctrl.wasm"
    assert controller_file("x.mjs").name == "jsctrl.wasm"
    Path("value.json").write_text('{"a": 1}\n')
    assert json.loads(read_request(options("script.py", "@value.json")).arg)["arg"] == {"a": 1}
    for arg in (None, "[0-9]"):
        asked = options("regex", arg)
        assert given_argument(asked, read_request(asked)) == arg


def test_text_that_begins_like_json_but_is_none_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    for arg in ("{bad", " [1, NaN]"):
        assert json.loads(read_request(options("script.py", arg)).arg)["arg"] == arg
        warned = capsys.readouterr().err
        assert warned.startswith("warning: the argument is not JSON, so the script receives it as a text: ")
    for harmless in ('{"a": 1}', "word", None):
        read_request(options("script.py", harmless))
    read_request(options("regex", "[0-9]"))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("program", ["aici", "hf", "vllm"])
def test_file_errors_are_reported_before_a_model_is_loaded(
    program: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(name: str) -> str:
        named = ["run", name] if program == "aici" else ["--controller", name]
        start = {"aici": main, "hf": run_hf, "vllm": run_vllm}[program]
        assert start([*named, "--prompt", "x"]) == 1
        return capsys.readouterr().err

    assert "error: there is no file scirpt.py: did you mean script.py?" in run("scirpt.py")
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)
    monkeypatch.setenv("AICI_SDISTS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "the controller pyctrl cannot be built: the sources of MicroPython are missing" in run("script.py")


def test_server_gets_the_script_as_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    with answering([(200, RUN)]) as (url, seen):
        assert main(["run", "script.py", "--arg", "7", "--prompt", "x", "--server", url]) == 0
    ((_, _, body),) = seen
    assert body["controller"] == "pyctrl"
    assert json.loads(body["controller_arg"]) == {"script": SCRIPT, "name": "script.py", "arg": 7}


def test_tracebacks_from_a_server_keep_their_lines(capsys: pytest.CaptureFixture[str]) -> None:
    traceback = 'Traceback (most recent call last):\n  File "script.py", line 3\nSyntaxError: invalid syntax'
    with answering([(400, refusal(traceback, "argument"))]) as (url, _):
        assert main(["run", "script.py", "--prompt", "x", "--server", url]) == 1
    errors = capsys.readouterr().err
    assert '\n    File "script.py", line 3\n  SyntaxError: invalid syntax\n' in errors
    assert errors.startswith("aici: error:\n  Traceback")


def test_list_explains_how_to_run_scripts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["list", "--store", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert "*.py" in listed and "Python, run by pyctrl" in listed
    assert "*.js *.mjs" in listed and "aici run my_script.js" in listed


def test_syntax_error_in_a_script_is_readable(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.py").write_text("async def main():\n    if:\n")
    default_model_path()
    capsys.readouterr()  # fetching the model may have printed lines
    assert main(["run", "bad.py", "--prompt", "x"]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith('aici: error:\n  Traceback (most recent call last):\n    File "bad.py", line 2')


@pytest.mark.slow
def test_script_with_a_real_model_prints_its_output_and_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AICI_SOCKET")  # the command starts a daemon
    assert main(["run", "script.py", "--prompt", "What is 3 + 4?", "--arg", "word"]) == 1
    shown = capsys.readouterr().out
    assert "«It is »" in shown
    assert "\n  | number " in shown and " word\n" in shown
    assert (
        "\n    File \"script.py\", line 7, in main\n  NameError: name 'no_such_name' isn't defined\n" in shown
    )


def test_check_prints_a_line_for_each_file_with_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.py").write_text(SCRIPT.replace("    no_such_name\n", ""))
    Path("good.js").write_text("export async function main() {}\n")
    Path("bad.py").write_text("x = 1\nif:\n")
    assert main(["check", "good.py", "good.js"]) == 0
    assert capsys.readouterr().out == "good.py: accepted\ngood.js: accepted\n"
    assert main(["check", "good.py", "script.py", "bad.py", "other.js"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "good.py: accepted",
        "script.py:7:5: NameError: name 'no_such_name' isn't defined",
        "bad.py:2: SyntaxError: invalid syntax",
        "other.js:1: there is no file other.js",
    ]
    assert main(["check", "bad.py", "--json"]) == 1
    (recorded,) = json.loads(capsys.readouterr().out)
    assert recorded == {"file": "bad.py", "line": 2, "column": None, "message": "SyntaxError: invalid syntax"}
    assert main(["check", "good.js", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_starter_script_passes_its_tests(language: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", f"--{language}", "story"]) == 0
    script = SCRIPTS[language]
    assert "next: aici test story && " in capsys.readouterr().out
    assert {path.name for path in Path("story").iterdir()} == {script, "tests.toml", "README.md"}
    for path in Path("story").iterdir():
        assert "NAME:" not in path.read_text()
    assert main(["check", "story"]) == 0
    assert f"story/{script}: accepted" in capsys.readouterr().out
    assert main(["test", "story", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [(each["file"], each["passed"]) for each in results] == [("story/tests.toml", True)] * 2


def test_tests_of_a_changed_starter_fail_until_they_are_updated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "--python", "story"]) == 0
    script = SCRIPTS["python"]
    Path("one.toml").write_text('prompt = "x"\n')
    capsys.readouterr()
    assert main(["test", f"story/{script}", "--transcript", "story/tests.toml", "one.toml"]) == 0
    shown = capsys.readouterr().out
    assert "story/tests.toml: 2 cases, 0 failed" in shown and "one.toml: 1 case, 0 failed" in shown
    text = Path("story", script).read_text()
    Path("story", script).write_text(text.replace("called", "named"))
    assert main(["test", f"story/{script}"]) == 1
    shown = capsys.readouterr().out
    assert '- "Once upon a time there was a cat called Tom.' in shown
    assert '+ "Once upon a time there was a cat named Tom.' in shown
    assert main(["test", "story", "--update"]) == 0
    assert main(["test", f"story/{script}"]) == 0


def test_missing_tests_and_controllers_of_folders_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("empty").mkdir()
    for command, words in (
        (["check", "empty"], "the folder empty has no script main.py or main.js, and no module"),
        (["test", "script.py"], "there are no tests: no file tests.toml; name recordings or test cases"),
        (["test", "script.py", "--json", "--update"], "--update has no results to print as JSON"),
        (["check", "yesno", "--arg", "1"], "--arg is for scripts"),
    ):
        assert main(command) == 1
        assert words in capsys.readouterr().err


def test_folder_stands_for_its_script_or_module(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    for name in ("a/main.js", "a/x.wasm", "b/y.wasm", "c.wasm"):
        (tmp_path / name).touch()
    found = [controller_in(str(tmp_path / name)) for name in ("a", "b", "c")]
    assert found == [str(tmp_path / name) for name in ("a/main.js", "b/y.wasm", "c.wasm")]
    assert controller_in("regex") == "regex" and controller_in("new.py") == "new.py"


def test_replays_report_differences_and_can_be_updated(capsys: pytest.CaptureFixture[str]) -> None:
    Path("script.py").write_text(SCRIPT.replace("    no_such_name\n", ""))
    with Playground() as playground:
        write_recording(playground.record("script.py", "It is 42."), "r.json")
        write_recording(playground.record("yesno", "Yes"), "y.json")
    command = ["test", "script.py", "--transcript", "r.json"]
    assert main([*command, "--masks"]) == 0
    assert capsys.readouterr().out == "r.json: vocabulary: the small vocabulary for tests\nr.json: ok\n"
    assert main(["test", "yesno", "--transcript", "y.json", "--recorded-tokens"]) == 0
    assert "only the" in capsys.readouterr().out
    assert main([*command, "--masks", "--recorded-tokens"]) == 1
    capsys.readouterr()
    Path("script.py").write_text(Path("script.py").read_text().replace('"number"', '"found"'))
    assert main(command) == 1
    shown = capsys.readouterr().out
    assert "r.json: failed\n" in shown
    assert "  -  printed: number 42 None\n" in shown and "  +  printed: found 42 None\n" in shown
    assert main([*command, "--update"]) == 0
    assert main(command) == 0
    Path("script.py").write_text(Path("script.py").read_text().replace("[0-9]", "[a-z]"))
    capsys.readouterr()
    for more in ([], ["--update"]):
        assert main([*command, *more]) == 1
        assert '"4" was sampled, which the controller does not allow now' in capsys.readouterr().out
    assert main(["test", "script.py", "--transcript", "gone.json"]) == 1
    assert "cannot read gone.json" in capsys.readouterr().err


def test_runs_that_cannot_be_recorded_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    def refusal(*options: str) -> str:
        assert main(["run", *options, "--prompt", "x", "--record", "r.json"]) == 1
        return capsys.readouterr().err

    assert "leave out --n and --beams" in refusal("script.py", "--n", "2")
    assert "--record needs a controller" in refusal("none")
    assert "--record cannot be used with --server" in refusal("yesno", "--server", "http://127.0.0.1:9")
    Path("r.json").mkdir()
    assert "cannot write r.json: it is a folder" in refusal("script.py")


# tests/test_starters.py records a model through the command, and test_replays_report_differences replays
@pytest.mark.slow
@pytest.mark.thorough
def test_recording_of_the_real_model_is_replayed_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    ending = """\
    mine = await fork(2)
    await force(" or " + str(mine))
    await gen(stop=".", max_tokens=6)
"""
    Path("script.py").write_text(SCRIPT.replace("    no_such_name\n", ending))
    options = ["--temperature", "0.8", "--seed", "3", "--max-tokens", "30", "--engine", "hf"]
    assert main(["run", "script.py", "--prompt", "What is 3 + 4?", "--record", "r.json", *options]) == 0
    assert "recorded: aici test script.py --transcript r.json" in capsys.readouterr().out
    recorded = json.loads(Path("r.json").read_text())
    sampled = [step for one in recorded["sequences"] for step in one["steps"] if "sample" in step]
    assert len(recorded["sequences"]) == 2 and len(sampled) > 3
    assert all(step["logprob"] <= 0 and step["allowed"] for step in sampled)
    command = ["test", "script.py", "--transcript", "r.json"]
    assert main([*command, "--masks"]) == 0
    assert "of the default model, SmolLM2-135M-Instruct" in capsys.readouterr().out
    assert main([*command, "--model", str(default_model_path())]) == 0
    assert main([*command, "--recorded-tokens"]) == 0
    Path("script.py").write_text(Path("script.py").read_text().replace(" or ", " and "))
    for more in ([], ["--recorded-tokens"]):
        assert main([*command, *more]) == 1


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_starter_script_is_valid_whatever_its_name(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", f"--{language}", "my-script"]) == 0
    (script,) = [path for path in Path("my-script").iterdir() if path.stem == "main"]
    assert main(["check", str(script)]) == 0, capsys.readouterr()
