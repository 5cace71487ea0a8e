"""Grammars of users, alone and after thinking."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.oracles.grammars.walk import Controller
from pyaici.server.apis.messages import Plan, plan
from tests.pyaici.server.messages.bodies import THINKING, TOOLS, request

Make = Callable[[Plan], Controller]


def wrapped(grammar: str, *, inside: bool = False) -> Plan:
    made = plan(request(bnf_schema=grammar, **THINKING), prompt_format="ai00" if inside else "template")
    assert made.level == "none" and made.argument is not None
    return made


def test_grammar_without_thinking_is_used_unchanged() -> None:
    custom = "start::='yes' | 'no';"
    for fields in ({}, {"bnf_validation": "none"}, {"tools": TOOLS}):
        assert plan(request(bnf_schema=custom, **fields)).argument == custom


@pytest.mark.parametrize(
    ("custom", "texts", "others"),
    [
        ("start::='yes' | 'no';", ["yes", "no"], ["maybe"]),
        ("start  \n::= restart; restart ::= 'a' start 'b' | 'c';", ["acb", "aacbb"], ["a<think></think>cb"]),
        ("start = 'start' started; started = \"start ::=\";", ["startstart ::="], ["start"]),
        ("(* start ::= 'x'; *) start ::= 'a' (* start *) #'start|b';", ["ab", "astart"], ["x"]),
        ("ws ::= 'w'; start ::= ws thinking; thinking ::= 't';", ["wt"], [" t", "w<think></think>"]),
        ("start ::= r0000; r0000 ::= 'a'; r00000 ::= 'b'; start ::= r00000;", ["a", "b"], ["ab"]),
        ("start ::= 'it\\'s start' \"\\\"start\";", ["it's start\"start"], []),
        ("ex ::= 'a'; start ::= ex #ex'b' '.' #e'start';", ["ax.start"], ["ab.start"]),
    ],
)
def test_thinking_may_come_before_a_text_of_the_grammar(
    grammar: Make, custom: str, texts: list[str], others: list[str]
) -> None:
    outside, inside = grammar(wrapped(custom)), grammar(wrapped(custom, inside=True))
    for text in texts:
        assert outside.accepts(text) and outside.accepts(f"<think>start < 3</think>\n {text}")
        assert outside.accepts(f"<think></think>{text}")
        assert inside.accepts(f"hm</think>{text}") and not inside.accepts(text)
    for text in others:
        assert not outside.accepts(text) and not inside.accepts(f"</think>{text}")
    assert not outside.accepts(f"<think></think><think></think>{texts[0]}")


@pytest.mark.parametrize(
    ("custom", "place"),
    [
        ("start ::= 'a'\n  b;", "line 2, column 3: there is no rule for b"),
        ("start ::= start start 'a' | b;", "line 1, column 29: there is no rule for b"),
        ("start ::= ['a';", "line 1, column 11"),
        ("other ::= start start;\nstart ::= #'[a';", "line 2, column 13"),
        ("start ::= start;", "column 1: start matches no text"),
        ("begin ::= 'a';", "there is no rule"),
    ],
)
def test_errors_name_the_place_in_the_users_grammar(grammar: Make, custom: str, place: str) -> None:
    """Places are also right if rules for thinking were added."""
    for made in (
        plan(request(bnf_schema=custom)),
        plan(request(bnf_schema=custom, **THINKING)),
    ):
        error = made.refused(grammar(made).refusal())
        assert error.status == 400 and error.param == "bnf_schema"
        if custom.startswith("begin"):
            assert "start" in error.message
        else:
            assert place in error.message
