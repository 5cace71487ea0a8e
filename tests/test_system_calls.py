"""The counter of system calls counts those of each part of a program."""

from __future__ import annotations

import pytest

from tests.system_calls import count

_PROGRAM = """
import os
from tests.system_calls import be_traced, mark
be_traced()
mark()
os.getuid(), os.getuid()
mark()
os.getgid()
mark()
print("done")
"""


def test_calls_are_counted_between_marks() -> None:
    (first, second, _), output = count(["-c", _PROGRAM])
    assert (first, second) == ({"getuid": 2}, {"getgid": 1})
    assert output == "done\n"


def test_failure_of_the_program_is_raised() -> None:
    with pytest.raises(AssertionError, match="ended with status"):
        count(["-c", "raise SystemExit(3)"])
