"""Files of functions that answer calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyaici.client.calls import load_functions


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import json\n\n1 / 0\n", "line 3: ZeroDivisionError: division by zero"),
        ("def ask(:\n", "line 1: SyntaxError: invalid syntax"),
        ("import nowhere_to_be_found\n", "line 1: ModuleNotFoundError"),
        ("_ask = print\n", "defines no functions"),
    ],
)
def test_files_that_fail_are_explained(tmp_path: Path, source: str, says: str) -> None:
    file = tmp_path / "functions.py"
    file.write_text(source)
    with pytest.raises(ValueError, match=says) as caught:
        load_functions(file)
    assert str(file) in str(caught.value)


def test_functions_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "functions.py"
    file.write_text("def ask():\n    return 1\n\ndef _other():\n    return 2\n")
    assert list(load_functions(file)) == ["ask"]
    file.write_text("CALLS = {'a.b': print}\n")
    assert list(load_functions(file)) == ["a.b"]
    with pytest.raises(FileNotFoundError):
        load_functions(tmp_path / "missing.py")
