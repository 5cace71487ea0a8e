"""Control characters from untrusted text do not reach the terminal."""

from __future__ import annotations

import json

import pytest

from aicirt.contract.errors import ControllerError
from aicirt.system.terminal import describe_error, printable, run_command, show, show_json

#: sets the title, clears the screen (also by C1), sends a device string, overwrites a line
HOSTILE = "\x1b]0;title\x07 \x1b[2J \x9b2J \x1bP$q\x1b\\\\ one\rtwo \x08 \x7f"


def controls(text: str) -> set[str]:
    return {c for c in text if (ord(c) < 32 or 127 <= ord(c) < 160) and c not in "\n\t"}


def test_control_characters_become_escapes() -> None:
    assert printable("\x1b[31m\x9b\x7f\r") == r"\x1b[31m\x9b\x7f\x0d"
    assert printable("a\tb\nnaïve 😀") == "a\tb\nnaïve 😀"
    every = "".join(map(chr, range(0x100)))
    assert controls(printable(every)) == set()


def test_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "\x1b\x7f\x85\x9b\n😀", "a": [1]}
    show_json(value)
    shown = capsys.readouterr().out
    assert json.loads(shown) == value and controls(shown) == set() and "😀" in shown


def test_errors_and_logs_of_commands_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> int:
        raise ControllerError(HOSTILE, log=f"{HOSTILE}\n")

    assert run_command("aici", fail) == 1
    output = capsys.readouterr().err
    assert controls(output) == set() and r"\x1b[2J" in output
    assert controls(describe_error(f"{HOSTILE}\n{HOSTILE}")) == set()


def test_output_of_commands_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    show(HOSTILE)
    output = capsys.readouterr().out
    assert controls(output) == set() and output.endswith("\n")
