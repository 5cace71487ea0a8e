"""Test cases in files: how they run, and how their expectations are updated."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyaici.cli.__main__ import main
from pyaici.client.calls import CallError
from pyaici.recording.recording import TranscriptFileError
from pyaici.testing import CaseResult, Playground, read_cases, run_case, write_recording
from pyaici.testing.cases import update_cases

SCRIPT = """
from aici import *
async def main():
    await force("It is ")
    colour = await gen(choice=arg)
    print("colour", colour)
    set_var("colour", colour)
    if colour == "red":
        fail("not red")
"""
TESTS = """\
# a comment at the beginning
[[case]]
name = "green"  # a comment
arg = ["red", "green"]
model = ["gr", "een"]
expect = { text = "It is green", log = ["colour green"], variables = { colour = "green" }, forks = [] }

[[case]]
arg = ["red"]
model = "red"
[case.expect]
error = "not red"
log = "colour red"
"""


@pytest.fixture(scope="module")
def playground() -> Iterator[Playground]:
    with Playground() as playground:
        yield playground


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.py").write_text(SCRIPT)


def run(playground: Playground, text: str, name: str = "t.toml") -> list[CaseResult]:
    Path(name).write_text(text)
    return [run_case(playground, "s.py", case) for case in read_cases(name)]


def test_warnings_of_the_library_are_shown_with_a_passed_case(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s.py").write_text("from aici import *\nasync def main():\n    gen(max_tokens=1)\n")
    Path("t.toml").write_text('expect = { text = "" }\n')
    assert main(["test", "s.py", "--transcript", "t.toml"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "t.toml: case 1: ok"
    assert shown[1] == "  warning: gen(...) was never awaited: write await gen(...)"


def test_cases_with_correct_expectations_pass(playground: Playground) -> None:
    results = run(playground, TESTS)
    assert [result.case.name for result in results] == ["green", "case 2"]
    assert [result.differences for result in results] == [[], []]


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ('text = "It is green"', 'text = "It is red"', '  - "It is red"'),
        ('log = ["colour green"]', 'log = ["colour", "x"]', '  + "colour green"'),
        ('colour = "green"', 'colour = "red"', '  - colour = "red"'),
        ("forks = []", 'forks = ["a"]', '  - "a"'),
        ("forks = []", 'error = "x"', 'error: expected a message with "x"'),
        ("forks = []", 'finish_reason = "eos"', '  + "stop"'),
        ('error = "not red"', 'error = "not blue"', 'error: expected a message with "not blue"'),
        ('error = "not red"\n', "", "there was an error, and none is expected:"),
    ],
)
def test_wrong_expectation_is_shown_as_a_difference(
    playground: Playground, before: str, after: str, line: str
) -> None:
    assert before in TESTS
    results = run(playground, TESTS.replace(before, after))
    (failed,) = [result for result in results if not result.passed]
    assert line in failed.differences


def test_file_can_be_a_single_case_or_json(playground: Playground) -> None:
    (one,) = run(playground, 'arg = ["green"]\nmodel = "x"\nexpect = { text = "It is green" }\n')
    assert one.passed and one.case.name == "case 1"
    content = {"case": [{"arg": ["green"], "expect": {"finish_reason": "stop"}}]}
    (one,) = run(playground, json.dumps(content), "t.json")
    assert one.passed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x", "is not TOML"),
        ('promt = "a"', "did you mean prompt"),
        ("other = 1", "the fields are name, prompt, model"),
        ("prompt = 1", "prompt is 1; it must be of type str"),
        ("seed = true", "seed is True"),
        ("model = [1]", "lists of texts"),
        ('expect = { txt = "a" }', "did you mean text"),
        ('model = "x"\n[[case]]\n', "no fields outside"),
        ("case = [1]", "must be a table"),
    ],
)
def test_invalid_case_files_are_refused(text: str, words: str) -> None:
    Path("t.toml").write_text(text)
    with pytest.raises(TranscriptFileError, match=words):
        read_cases("t.toml")


def test_update_changes_only_wrong_expectations(playground: Playground) -> None:
    wrong = TESTS.replace("It is green", "It is blue").replace("not red", "not blue")
    wrong += '\n[[case]]\narg = ["a", "b"]\nmodel = "b"\n'
    results = run(playground, wrong)
    assert update_cases(Path("t.toml"), results)
    text = Path("t.toml").read_text()
    assert text.startswith(TESTS.split("expect")[0])
    again = run(playground, text)
    assert all(result.passed for result in again)
    assert again[1].case.expect == {"log": ["colour red"], "error": "not red"}
    assert again[2].case.expect == {"text": "It is b", "log": ["colour b"], "variables": {"colour": "b"}}
    assert not update_cases(Path("t.toml"), again), "a second update changes nothing"
    assert Path("t.toml").read_text() == text


def test_update_of_long_values_json_files_and_unsupported_syntax(playground: Playground) -> None:
    text = 'arg = ["a"]\nexpect = { log = [\n  "x",\n  "y ]",\n] }\nmodel = "a"\n'
    update_cases(Path("t.toml"), run(playground, text))
    written = Path("t.toml").read_text()
    assert written.endswith('model = "a"\n') and '"y ]"' not in written
    assert tomllib.loads(written)["expect"] == {"log": ["colour a"]}
    text = 'arg = ["a \\"b\\"", "it\'s \\"c\\""]\nmodel = MODEL\nexpect = { text = "x" }\n'
    for model, now in [("'a'", """'It is a "b"'"""), ('"it"', r'''"It is it's \"c\""''')]:
        update_cases(Path("t.toml"), run(playground, text.replace("MODEL", model)))
        assert f"text = {now} }}" in Path("t.toml").read_text(), (
            "quotes need no escapes if they can be avoided"
        )
    content = {"case": [{"arg": ["a"]}]}
    update_cases(Path("t.json"), run(playground, json.dumps(content), "t.json"))
    assert json.loads(Path("t.json").read_text())["case"][0]["expect"]["text"] == "It is a"
    dotted = 'arg = ["a"]\nexpect.text = "x"\n'
    with pytest.raises(TranscriptFileError, match=r"write each expectation as expect = \{"):
        update_cases(Path("t.toml"), run(playground, dotted))
    assert Path("t.toml").read_text() == dotted


ASKING = """
from aici import *
async def main():
    for i in range(3):
        try:
            print(await call("price", item=i))
        except CallError as error:
            print(error.code, error)
    print(await call("clock"))
"""
ANSWERS = """\
[calls]
clock = "12:00"
[calls.price]
answers = [7, { error = { code = "sold_out", message = "no more" } }, { euros = 8 }]

[expect]
log = ["7", "sold_out no more", "{'euros': 8}", "12:00"]
"""


def test_calls_have_written_answers(playground: Playground) -> None:
    Path("asking.py").write_text(ASKING)
    Path("asking.toml").write_text(ANSWERS)
    (case,) = read_cases("asking.toml")
    result = run_case(playground, "asking.py", case)
    assert result.passed, result.differences


def test_answers_of_a_case_can_be_those_of_a_recording(playground: Playground) -> None:
    Path("asking.py").write_text(ASKING)

    def price(item: int) -> int:
        if item == 1:
            raise CallError("sold_out", "no more")
        return 7 + item

    write_recording(playground.record("asking.py", calls={"price": price, "clock": "12:00"}), "asked.json")
    Path("cases").mkdir()
    Path("cases/asking.toml").write_text(
        'calls = "../asked.json"\nexpect = { log = ["7", "sold_out no more", "9", "12:00"] }\n'
    )
    (case,) = read_cases("cases/asking.toml")
    result = run_case(playground, "asking.py", case)
    assert result.passed, result.differences
    Path("cases/asking.toml").write_text('calls = "asked.json"\n')
    with pytest.raises(TranscriptFileError, match="cannot read"):
        read_cases("cases/asking.toml")
