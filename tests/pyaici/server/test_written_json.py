"""JSON that models write, parsed for clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pyaici.server.answers.arguments import read_json


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"\ud800"', "\N{REPLACEMENT CHARACTER}"),
        (
            r'{"\udfff": ["a\uD800b", 1.5]}',
            {"\N{REPLACEMENT CHARACTER}": ["a\N{REPLACEMENT CHARACTER}b", 1.5]},
        ),
        (r'"\ude00\ud83d"', "\N{REPLACEMENT CHARACTER}" * 2),
        (r'"\ud83d\ude00"', "\N{GRINNING FACE}"),
        (r'"\\ud800"', "\\ud800"),
        (r'"\u0000\u001f"', "\x00\x1f"),
    ],
)
def test_lone_surrogates_become_replacement_characters(text: str, value: Any) -> None:
    assert read_json(text) == value
    json.dumps(read_json(text), ensure_ascii=False).encode()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize("text", ["NaN", "-Infinity", "[1e999]", "1" * 5000, "{'a': 1}", "", "[" * 100_000])
def test_invalid_json_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        read_json(text)
