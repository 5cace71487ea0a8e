"""JSON schemas within grammars in Lark."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.oracles.grammars.walk import Controller

Make = Callable[[str | bytes], Controller]

LIST = '%json {"type": "array", "items": {"type": "integer"}}'
FLAG = '%json {"type": "boolean"}'
NAME = "\nNAME: /[a-z]+/"
BLANKS = "\n%ignore / +/"


@pytest.mark.parametrize(
    ("text", "texts", "others"),
    [
        (f'start: "a" {LIST} "b"', ["a[1,2]b", "a[1, 2]b", "a[\n 1]b"], ["a [1]b", "a[1] b", "a[1,  2]b"]),
        (f'start: "a" {LIST} "b"{BLANKS}', ["a[1, 2]b", " a  [1]  b "], ["a[1,  2]b", "a[1   ]b"]),
        (f"start: {LIST} {FLAG}{BLANKS}", ["[]true", " [1]  true "], ["[]", "true[]"]),
        (f'start: ("<" {FLAG} ">")+{BLANKS}', ["<true><false>", "< true > <false>"], ["<tr ue>", "<>"]),
        (f"start: NAME {FLAG}{NAME}{BLANKS}", ["x true", "true true"], ["xtrue", "true"]),
        (f"start: {FLAG} NAME{NAME}{BLANKS}", ["truex", "true x"], ["true", "xtrue"]),
        (f"start: {FLAG} | NAME{NAME}{BLANKS}", ["true", "tru", "truex", " true "], ["true x"]),
        (f'start: {FLAG} "!" | NAME "?"{NAME}', ["true!", "true?", "tru?"], ["tru!", "true"]),
        ('start: x* "."\nx: %json {"const": 1} | "1"', [".", "11."], ["1", "12."]),
        ("start: %json true", ["1", '{"a": [null]}'], ["a"]),
        ('start: %json // here\n {"type":\n\n "integer"} "a"', ["12a"], ["a"]),
        ('start: %json {"const": "}\\"{"} "a"', ['"}\\"{"a'], ['"}"a']),
        (
            'start: %json {"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}},\n'
            '  "$ref": "#/$defs/a"} "." %json {"$defs": {"a": {"enum": [1]}}, "$ref": "#/$defs/a"}',
            ["[[]].1"],
            ["1.1", "[1].1"],
        ),
    ],
)
def test_json_values_stand_where_lexemes_do(
    grammar: Make, text: str, texts: list[str], others: list[str]
) -> None:
    """Ignored text may stand around JSON values, not in them, and no lexeme competes with their contents."""
    made = grammar(text)
    assert [t for t in texts if not made.accepts(t)] == []
    assert [t for t in others if made.accepts(t)] == []


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (f'start: "a" NAME {FLAG} | "b"{NAME}', b"b"),
        (f'start: "a" {FLAG} NAME "x" | "b"{NAME}', b"b"),
        (f'start: "a" {FLAG} {LIST}* NAME "x" | "b"{NAME}', b"b"),
        (f'start: "a" {FLAG} NAME "x" | "b"{NAME}{BLANKS}', b" ab"),
    ],
)
def test_lexemes_that_cannot_be_completed_are_not_begun(grammar: Make, text: str, first: bytes) -> None:
    """A name includes all letters after it, also if values stand in between."""
    state = grammar(text).after("")
    assert state is not None and state.next == first


def test_any_text_with_calls_of_functions(grammar: Make) -> None:
    """The text ends at the first `<call`, although it could continue."""
    made = grammar(
        "start: (head arguments)* TEXT\nTEXT: /(.|\\n)*/\nhead[lazy]: TEXT /<call [a-z]+>/\n"
        'arguments: %json {"type": "object", "properties": {"n": {"type": "integer"}}, '
        '"required": ["n"]} "</call>"'
    )
    for text in ("", "It is 1 < 2.", 'Let me see.\n<call f>{"n": 1}</call>Done.', '<call f>{"n": 1}</call>'):
        assert made.accepts(text), text
    for text in ("<call f>", "<call f>Done.", 'So: <call f>{"n": "x"}</call>', 'x<call f>{"n": 1}<call g>'):
        assert not made.accepts(text), text
    state = made.after("Well, <call f>")
    assert state is not None and state.next == b"{"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('start: "a"\n  %json {"type": 1}', "line 2, column 3: the schema is refused\n#/type: "),
        (
            'start: "é" %json {"type": "array",\n "not": {"uniqueItems": true}}',
            "line 1, column 12: the schema is refused\n#/not/uniqueItems: the negation of uniqueItems",
        ),
        (
            'start: "é" %json\n {"type":\n  integer}',
            "line 1, column 12: the schema is refused\n#: the schema is not JSON: line 3, column 3: a",
        ),
        ('start: %json {"a": 1', "line 1, column 14: this object is not closed: `}` is missing"),
        (
            "start: %json",
            "line 1, column 13: a schema, which is an object in braces, is expected, not the end",
        ),
        (
            "start: %json [1]",
            "line 1, column 14: a schema, which is an object in braces, is expected, not `[`",
        ),
        ("start: x\nx[lazy]: %json {}", "line 2, column 10: %json cannot be in a terminal"),
        ("start: %json false", "line 1, column 8: the schema is refused\n#: no value meets this schema"),
    ],
)
def test_errors(grammar: Make, text: str, message: str) -> None:
    assert grammar(text).refusal().startswith(message)
