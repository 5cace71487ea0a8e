"""The syntax of GBNF: what each construct stands for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.oracles.grammars.walk import Controller

Make = Callable[[str], Controller]


def test_the_end_is_allowed_where_the_text_is_complete(grammar: Make) -> None:
    made = grammar('root ::= "a" | "abc"')
    state = made.after("a")
    assert state is not None and state.end and state.next == b"b"
    state = made.after("ab")
    assert state is not None and not state.end and state.next == b"c"
    state = made.after("abc")
    assert state is not None and state.over


@pytest.mark.parametrize(
    ("body", "texts", "others"),
    [
        ('"a" "b"', ["ab"], ["a", "ba"]),
        ('"a"\n  "b"', ["ab"], ["a"]),
        ('"a" | "b"', ["a", "b"], ["c", "ab"]),
        ('"a" |\n "b"', ["a", "b"], []),
        ('"a"\n | "b"', ["a", "b"], []),
        ('( "a"\n "b" # comment\n | "c" )', ["ab", "c"], []),
        ('| "a"', ["", "a"], ["b"]),
        ('"a" (| "b")', ["a", "ab"], ["b"]),
        ('"ab"* "."', ["abab.", "."], ["ba.", "aba."]),
        ('"a"+', ["a", "aa"], [""]),
        ('("a" "b"?)+', ["aab", "aba"], ["ba"]),
        ('"a"{2}', ["aa"], ["a", "aaa"]),
        ('"a"{2,}', ["aa", "aaaa"], ["a"]),
        ('"a"{0,2} "."', [".", "aa."], ["aaa."]),
        ('("a" x){1,2} "."\nx ::= "b" | "c" x', ["ab.", "acbab."], ["."]),
        ('"a"{0} "."', ["."], ["a."]),
        ('"a"?+ "."', [".", "aa."], []),
        ("[a-c]", ["a", "b", "c"], ["d", ""]),
        ("[^a-c]", ["d", "é", "\n"], ["a", ""]),
        ("[-+*/]+", ["+-*/"], ["a"]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"[\]\[\\\"^]+", ['][\\"^'], ["a"]),
        ("[ぁ-ゟ]+", ["ひらがな"], ["カ"]),
        (r"[\x41-\u0043\U00000044]+", ["ABCD"], ["E"]),
        (".", ["a", "\n", "😀"], ["", "ab"]),
        (r'"\x41\u00e9\U0001F600\n\r\t\\\"\[\]"', ['Aé😀\n\r\t\\"[]'], []),
        ("check-mate\ncheck-mate ::= r2_d2\nr2_d2 ::= [0-9]", ["7"], ["x"]),
        ("[0-9]* [0-5] [a-z]", ["123x", "5y"], ["6x"]),
    ],
)
def test_constructs(grammar: Make, body: str, texts: list[str], others: list[str]) -> None:
    made = grammar(f"# texts\nroot ::= {body}\n")
    assert made.log() == ""
    assert [t for t in texts if not made.accepts(t)] == []
    assert [t for t in others if made.accepts(t)] == []


JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" char* "\"" ws
char   ::= [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4})
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
"""


def test_a_grammar_of_json(grammar: Make) -> None:
    made = grammar(JSON)
    assert made.log() == "", "rules whose patterns stand where they are called are used"
    for text in ("{}", '{"a": [1, -2.5e+7, "\\u00e9\\n", null],\n  "b":{} }', '{"é": true}'):
        assert made.accepts(text), text
    for text in ("[]", '{"a" 1}', '{"a":01}', '{"a": "\n"}', "{", '{"a":1,}'):
        assert not made.accepts(text), text


def test_frequently_used_rules_are_not_expanded_without_limit(grammar: Make) -> None:
    """A pattern of 80 states, 3000 times: beyond a bound it is a rule again."""
    word = "[a-z]" * 80
    rules = "\n".join(f'r{i} ::= "{i}" word r{i + 1} | "."' for i in range(3000))
    made = grammar(f"root ::= r0\nword ::= {word}\n{rules}\nr3000 ::= word")
    assert made.accepts("0" + "q" * 80 + "1" + "q" * 80 + ".")
    assert not made.accepts("0" + "q" * 79 + "1")
