"""``interpreter.toml``: valid and invalid contents."""

from __future__ import annotations

from pathlib import Path

import pytest

from pyaici.build import BuildError
from pyaici.build.interpreters import LANGUAGES, MANIFEST, Manifest, is_interpreter


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
