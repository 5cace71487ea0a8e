"""The constructs of KBNF."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from lab.oracles.grammars.walk import Controller

Make = Callable[[str], Controller]


def test_the_first_complete_text_ends_the_output(grammar: Make) -> None:
    made = grammar("start ::= 'a' | 'abc';")
    assert made.accepts("a") and made.after("ab") is None
    state = made.after("")
    assert state is not None
    tokens = [b"a", b"ab", b"abc"]
    assert sorted(made.bytes_of(t) for t in state.tokens) == tokens, "inside a token the text may go on"


def test_a_token_ends_the_output_only_if_the_text_after_it_is_complete(grammar: Make) -> None:
    made = grammar("start ::= 'a' | 'abc';")
    guest = made.start()
    assert not made.state(guest, []).over
    state = made.state(guest, [made.token(b"ab")])
    assert not state.over and state.next == b"c"
    assert made.state(guest, [ord("c")]).over


def test_an_end_token_is_never_allowed(grammar: Make) -> None:
    """A start that may be empty needs one byte; the controller stops by itself."""
    made = grammar("start ::= #'[0-9]*';")
    state = made.after("")
    assert state is not None and not state.end and state.next == b"0123456789"
    state = made.after("7")
    assert state is not None and state.over


@pytest.mark.parametrize(
    ("body", "texts", "others"),
    [
        ("'a' 'b'", ["ab"], ["a", "b", "ba"]),
        ("'a', 'b',\n'c'", ["abc"], ["ab"]),
        ("'a''b'", ["ab"], []),
        ("'a' | \"b\"", ["a", "b"], ["c"]),
        ("'' | 'a'", ["a"], ["b"]),
        ("('a' | 'b') '.'", ["a.", "b."], ["."]),
        ("['a'] '.'", ["a.", "."], ["aa."]),
        ("{'a'} '.'", ["aaa.", "a.", "."], ["b."]),
        ("'a'? '.'", ["a.", "."], ["aa."]),
        ("'a'* '.'", ["aa.", "."], []),
        ("'a'+ '.'", ["aa.", "a."], ["."]),
        ("'a' ? '.'", ["a.", "."], []),
        ("('a' 'b'?)+ '.'", ["aab.", "aba."], ["ba."]),
        ("('a'?)* '.'", [".", "aa."], []),
        ("['a' | 'b' {'c'}]? '.'", ["bcc.", "a.", "."], ["ac."]),
        ("('(' 'a' ')')", ["(a)"], ["a"]),
        ("('(' 'a') {'{' 'a'} '.'", ["(a{a.", "(a."], ["a"]),
        ("['[' 'a'] '.'", ["[a.", "."], ["a."]),
        ("x x; x ::= 'a'; x = 'b'", ["ab", "ba", "aa"], ["c"]),
        ("(* a *) 'a' (* 'b' *) 'c'", ["ac"], ["abc"]),
        ("'é' \"'\" '\"'", ["é'\""], []),
    ],
)
def test_constructs(grammar: Make, body: str, texts: list[str], others: list[str]) -> None:
    made = grammar(f"start ::= {body};")
    assert [t for t in texts if not made.accepts(t)] == []
    assert [t for t in others if made.accepts(t)] == []


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (r"'\n\r\t\\\'\"\b\f\/\v\0'", "\n\r\t\\'\"\b\f/\v\0"),
        (r"'\101\x41\u0041\u{41}'", "AAAA"),
        (r"'\xff\u{1F600}\ud83d\ude00\377\400'", "ÿ😀😀ÿ\x200"),
        (r"#'\\d\d[\s\S]' '.'", "12x."),
        (r"#'\'\x41\t\.' '!'", "'A\t.!"),
        (r"#'[^\"\\\\]' '.'", "x."),
        ("#'(?i)ab' '.'", "aB."),
        ("#'(?x) a b # c' '.'", "ab."),
        ('#"[a-z]+" "."', "abc."),
        ("#substrs'a\\'b' '.'", "'b."),
    ],
)
def test_escapes_and_patterns(grammar: Make, body: str, text: str) -> None:
    assert grammar(f"start ::= {body};").accepts(text)


def test_patterns_may_end_wherever_they_match(grammar: Make) -> None:
    made = grammar("start ::= #'[a-z]+' 'ab' '!';")
    assert made.accepts("aab!") and made.accepts("xabab!") and not made.accepts("ab!")


def test_early_patterns(grammar: Make) -> None:
    assert grammar("start ::= #e'a*' 'b';").accepts("ab")
    assert not grammar("start ::= #e'a*' 'b';").accepts("b")
    assert not grammar("start ::= #e'a*' 'b';").accepts("aab")
    assert grammar("start ::= #e'a|ab' '.';").accepts("a.")
    assert not grammar("start ::= #e'a|ab' '.';").accepts("ab.")


def test_complements(grammar: Make) -> None:
    made = grammar("start ::= #ex'</think>' '</think>';")
    assert made.accepts("a</thin</think>") and made.accepts("<</think>")
    assert not made.accepts("</think>"), "it is not empty"
    assert grammar("start ::= #ex'</think>'? '</think>';").accepts("</think>")
    assert grammar("start ::= #ex'ab' 'b' '.';").accepts("ab."), "a match may cross the border"
    assert not grammar("start ::= #ex'a|b' '.';").accepts("xbx.")
    assert grammar("start ::= #ex'\\\\d' '.';").accepts("é.")
    assert grammar("start ::= #ex'^a' 'b' '.';").accepts("xab.")
    assert not grammar("start ::= #ex'^a' 'b' '.';").accepts("axb.")
    assert not grammar("start ::= #ex'a$|^b' '.';").accepts("xax.")


def test_a_complement_of_everything_is_left_out_with_a_warning(grammar: Make) -> None:
    made = grammar("start ::= 'x' #ex'a*' | #e'' | 'y';")
    assert made.log() == (
        "warning: line 1, column 15: no text matches this\nwarning: line 1, column 25: no text matches this\n"
    )
    state = made.after("")
    assert state is not None and state.next == b"y"


def test_complements_are_well_formed_utf8(grammar: Make) -> None:
    state = grammar("start ::= #ex'x' '.';").after("a\xc3".encode("latin1"))
    assert state is not None and state.next == bytes(range(0x80, 0xC0))


def test_parts_of_a_text(grammar: Make) -> None:
    made = grammar("start ::= #substrs'abc' ',' #substrs'xyzw' '.';")
    for text in (",.", "bc,yz.", "abc,."):
        assert made.accepts(text)
    for text in ("ac,.", "x,.", "a,zx."):
        assert not made.accepts(text)
    state = made.after("")
    assert state is not None and state.next == b",abc"


THINKING = r"""
start           ::= thinking? content;
thinking        ::= '<think>' #ex'</think>' '</think>' ws;
content         ::= calls | text;
calls           ::= #ex'<calls>' '<calls>\n' call* '</calls>';
call            ::= '  <call name="' name '">\n' argument* '  </call>\n';
argument        ::= '    <argument name="' #'[a-z_]+' '">' #ex'</argument>' '</argument>\n';
name            ::= #'[a-zA-Z0-9_-]+';
text            ::= #ex'<calls>' #'[\s\S]*' terminator;
terminator      ::= '</answer>';
ws              ::= #'[ \\t\\n\\r]*';
"""


def test_a_grammar_of_thinking_and_calls(grammar: Make) -> None:
    """Patterns with one or two backslashes; complements before the excluded text."""
    made = grammar(THINKING)
    assert made.log() == ""
    assert made.accepts("<think>Is it < 3?</think>\nIt is.\n</answer>")
    assert made.accepts("Hello\n</answer>")
    call = '<calls>\n  <call name="get-it">\n    <argument name="x">a < b</argument>\n  </call>\n</calls>'
    assert made.accepts("Let me look.\n" + call)
    assert made.accepts(f"<think>x</think>\n{call}".replace("\n<calls>", "\n\n<calls>"))
    assert made.after("<think>x</think>\n<calls>\n  <cell") is not None, "any text may be an answer"
    assert not made.accepts("Hello")


def test_a_json_schema(grammar: Make) -> None:
    schema = '{"type": "object", "properties": {"don\\\'t": {"enum": [1, "x"]}}, "required": ["don\\\'t"]}'
    made = grammar(f"start ::= '<' #json'{schema}'  '>';")
    assert made.accepts('<{"don\'t": 1}>') and made.accepts('<{"don\'t": "x", "more": []}>')
    assert not made.accepts('<{"don\'t": 2}>') and not made.accepts("<{}>")
    refused = grammar("start ::= 'a'\n #json'{\"type\": 1}';").refusal()
    assert refused.startswith("line 2, column 2: the schema is refused\n#/type: ")


@pytest.mark.parametrize(
    ("schema", "texts", "others"),
    [
        ({"type": "string"}, ["", "a", '"', "\\", "\n"], []),
        ({"enum": ["", 'a"b', "\n"]}, ["", 'a"b', "\n"], ["a", '""']),
        ({"type": "string", "pattern": '^["\\\\]+$'}, ['"\\"'], ["a", ""]),
        ({"type": "string", "pattern": "\\bb"}, ["a b", "\nb"], ["ab"]),
        (
            {"type": "string", "minLength": 1, "maxLength": 3},
            ["a", "\\\\\\", "\\n\n", "é😀"],
            ["", "\\\\\\\\", "\\n\\n"],
        ),
        ({"type": "string", "maxLength": 0}, [""], ["a"]),
        ({"type": "string", "pattern": "^[ab]*$", "maxLength": 40}, ["", "ab" * 20], ["ab" * 21, "c"]),
        ({"type": "string", "not": {"enum": ["", "a\n"]}}, ["a", "a\\n"], ["", "a\n"]),
        ({"type": "string", "not": {"pattern": "ab"}}, ["", "ba"], ["ab", "cabc"]),
        ({"type": "string", "format": "date"}, ["2024-02-29"], ["2023-02-29", '"2024-02-29"']),
    ],
)
def test_strings_without_quotes(grammar: Make, schema: object, texts: list[str], others: list[str]) -> None:
    escaped = json.dumps(schema).replace("\\", "\\\\").replace("'", "\\'")
    made = grammar(f"start ::= '<' #text'{escaped}' '>';")
    assert [text for text in texts if not made.accepts(f"<{text}>")] == []
    assert [text for text in others if made.accepts(f"<{text}>")] == []


@pytest.mark.parametrize("schema", ["{}", '{"type": ["string", "null"]}', '{"enum": ["a", 1]}'])
def test_only_strings_can_be_written_without_quotes(grammar: Make, schema: str) -> None:
    refused = grammar(f"start ::= #text'{schema}';").refusal()
    assert "line 1, column 11: the schema is refused\n#: all values must be strings" in refused
