"""`aici grammar`, as a user calls it."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from pyaici import bundled
from pyaici.cli.__main__ import main
from pyaici.toolchain import build_controller

ROOT = Path(__file__).resolve().parents[3]
GRAMMAR = """\
start  ::= 'yes' reason? '.' | 'no.';
reason ::= ', as ' #'[a-z ]+';
spare  ::= 'x';
"""


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds the controllers of grammars, so that the tests do not depend on an earlier build."""
    folder = tmp_path_factory.mktemp("shipped")
    for name in ("kbnf", "lr1"):
        build_controller(ROOT / "controllers" / name, folder / f"{name}.wasm")
    return folder


@pytest.fixture(autouse=True)
def here(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs commands outside the repository, in a folder with one grammar."""
    monkeypatch.setattr(bundled, "FOLDER", shipped)
    monkeypatch.chdir(tmp_path)
    Path("answer.kbnf").write_text(GRAMMAR)


def test_check_prints_warnings_size_time_and_first_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", "check", "answer.kbnf"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "answer.kbnf: accepted by kbnf"
    assert lines[1] == "  warning: line 3, column 1: the rule spare is not used"
    assert lines[2].startswith(f"  size     {len(GRAMMAR)} bytes, read by ")
    assert lines[3].startswith("  time     read in ")
    assert lines[4:] == ['  begins   with "n", "y"']


def test_a_file_may_be_given_as_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", "check", "@answer.kbnf"]) == 0
    assert capsys.readouterr().out.startswith("@answer.kbnf: accepted by kbnf\n")


def test_check_reports_the_error_in_a_refused_grammar(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.kbnf").write_text("start ::= 'a'\n  | b;")
    assert main(["grammar", "check", "bad.kbnf"]) == 1
    output = capsys.readouterr().err
    assert output == "aici: error: kbnf refuses the grammar: line 2, column 5: there is no rule for b\n"


def test_kind_of_a_grammar_follows_from_its_name_or_option(capsys: pytest.CaptureFixture[str]) -> None:
    Path("rules").write_text(GRAMMAR)
    assert main(["grammar", "check", "rules"]) == 1
    assert "the kind of grammar is unknown; give --kind, or rename the file" in capsys.readouterr().err
    assert main(["grammar", "check", "rules", "--kind", "kbnf"]) == 0
    assert main(["grammar", "check", "missing.kbnf"]) == 1
    assert "cannot read missing.kbnf: No such file" in capsys.readouterr().err


def test_test_prints_whether_texts_are_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("text").write_bytes(b"yes, as i say.")
    options = ["--accept", "no.", "--accept", "@text", "--reject", "yes!", "--reject", "yes, as it is"]
    assert main(["grammar", "test", "answer.kbnf", *options]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "  warning: line 3, column 1: the rule spare is not used",
        'ok     accepted  "no."',
        "ok     accepted  @text",
        'ok     rejected  "yes!"',
        '       line 1, column 4: "!" comes where ",", "." could come',
        'ok     rejected  "yes, as it is"',
        '       line 1, column 14: the text ends where " ", ".", "a" to "z" could come',
    ]


def test_unexpected_results_are_marked_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", "test", "answer.kbnf", "--accept", "no", "--reject", "no."]) == 1
    out = capsys.readouterr().out
    assert 'WRONG  rejected  "no"\n       line 1, column 3: the text ends where "." could come\n' in out
    assert 'WRONG  accepted  "no."\n2 of 2 results are not as expected\n' in out


def test_test_without_texts_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["grammar", "test", "answer.kbnf"])
    assert caught.value.code == 2
    assert "give texts with --accept or --reject" in capsys.readouterr().err


def test_samples_of_a_bundled_grammar_are_valid_texts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grammar", "sample", "json.y", "-n", "8", "--length", "30", "--seed", "5"]) == 0
    samples = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(samples) == 8
    for text in samples:
        json.loads(text)


def test_sample_reports_texts_that_did_not_end(capsys: pytest.CaptureFixture[str]) -> None:
    Path("long.kbnf").write_text("start ::= #'[a-z]{400}' '.';")
    assert main(["grammar", "sample", "long.kbnf", "-n", "2", "--length", "8"]) == 1
    assert "only 0 of 2 texts were completed; --length 32 allows longer texts" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["check"], ["test"], ["sample"]])
def test_help_has_examples_and_exit_statuses(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["grammar", *words, "--help"])
    output = capsys.readouterr().out
    assert caught.value.code == 0 and "examples:\n  aici grammar" in output
    assert not words or "Exit status: 0" in output


def test_example_in_the_docs_prints_what_they_show(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "grammars.md").read_text()
    ((grammar,),) = [re.findall(r"```kbnf\n(.*?)```", page, re.DOTALL)]
    ((command, shown),) = re.findall(r"```\n\$ aici (grammar test .*)\n((?s:.*?))```", page)
    Path("answer.kbnf").write_text(grammar)
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out == shown
