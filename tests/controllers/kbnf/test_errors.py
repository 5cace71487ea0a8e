"""Errors and warnings for invalid, odd and large grammars, with their positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.oracles.grammars.walk import Controller

Make = Callable[[str | bytes], Controller]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "kbnf needs a grammar as its argument, such as start::='yes' | 'no';"),
        ("(* nothing *)", "the grammar has no start rule, start"),
        ("strat ::= 'a';", "the grammar has no start rule, start; did you mean strat?"),
        (
            "start ::= 'a'",
            "line 1, column 14: `;` at the end of a rule, or more of it, is expected, not the end",
        ),
        ("start 'a';", "line 1, column 7: `::=` after the name of a rule is expected, not `'`"),
        (
            "start ::= ;",
            "line 1, column 11: a text, a pattern, a name or a bracket (the empty text is '') is exp",
        ),
        ("start ::= 'a' | ;", "line 1, column 17: a text, a pattern, a name or a bracket"),
        ("start ::= 'a', ;", "line 1, column 16: a text, a pattern, a name or a bracket"),
        ("start ::= ();", "line 1, column 12: a text, a pattern, a name or a bracket"),
        ("start ::= 'a'?*;", "line 1, column 15: only one of ?, * and + is possible here: write ('a'?)*"),
        (
            "start ::= ('a'\n | ['b');",
            "line 2, column 8: `]` for the bracket of line 2, column 4 is expected, not `)`",
        ),
        (
            "start ::= ('a';",
            "line 1, column 15: `)` for the bracket of line 1, column 11 is expected, not `;`",
        ),
        (
            "start ::= 'a');",
            "line 1, column 14: `;` at the end of a rule, or more of it, is expected, not `)`",
        ),
        ("start ::= 'a;", "line 1, column 11: this text is not closed: its quote is missing"),
        ("start ::= 'é' 'a\\q';", "line 1, column 17: unknown escape in a text; allowed are \\n \\r"),
        ("start ::= '\\xg0';", "line 1, column 12: this escape needs 2 hexadecimal digits"),
        ("start ::= '\\u{110000}';", "line 1, column 12: this is not a character: the last one is 10FFFF"),
        ("start ::= '\\ud800';", "line 1, column 12: this is half a character: a surrogate needs"),
        ("start ::= '\\u{}';", "line 1, column 12: this escape needs hexadecimal digits between"),
        ("(* a", "line 1, column 1: this comment is not closed: `*)` is missing"),
        (
            "start ::= 'a';\n(* (* *)\n*)",
            "line 3, column 1: the name of a rule (letters, digits and _) is exp",
        ),
        ("start ::= 'a' x;\n", "line 1, column 15: there is no rule for x"),
        (
            "start ::= vlaue; value ::= 'a';",
            "line 1, column 11: there is no rule for vlaue; did you mean value?",
        ),
        ("start ::= 'a'; b ::= c;", "line 1, column 22: there is no rule for c"),
        ("start ::= 'a' {2};", "line 1, column 16: a text, a pattern, a name or a bracket"),
        ("a-b ::= 'a';", "line 1, column 2: `::=` after the name of a rule is expected, not `-`"),
        ("1 ::= 'a';", "line 1, column 1: the name of a rule (letters, digits and _) is expected, not `1`"),
        ("start ::= #x'a';", "line 1, column 11: `#x` is unknown; allowed are #'...', #e'...', #ex'...',"),
        ("start ::= # 'a';", "line 1, column 12: a quote after `#` is expected, not ` `"),
        ("start ::= 'a'\n  #'a\\x41[';", "line 2, column 10: in this pattern"),
        ("start ::= #ex'a\\\\bb';", "line 1, column 15: in this pattern anchors and word boundaries"),
        ("start ::= #'(?>a)';", "line 1, column 13: in this pattern atomic groups"),
        ("start ::= start;", "line 1, column 1: start matches no text: each of its alternatives needs"),
        ("start ::= 'a' start;", "line 1, column 1: start matches no text"),
        ("start ::= '';", "start matches only the empty text; it must match at least one byte"),
        ("start ::= x*; x ::= '';", "start matches only the empty text"),
    ],
)
def test_a_message_says_what_is_wrong_and_where(grammar: Make, text: str, message: str) -> None:
    assert grammar(text).refusal().startswith(message)


def test_a_grammar_must_be_utf8(grammar: Make) -> None:
    message = grammar(b"start ::=\n '\xff';").refusal()
    assert message == "line 2, column 3: the grammar is not well-formed UTF-8"


def test_warnings(grammar: Make) -> None:
    made = grammar("start ::= 'a' | endless; endless ::= 'b' endless;\nspare ::= more; more ::= 'c';")
    assert made.log() == (
        "warning: line 1, column 26: endless matches no text, so what needs it is removed\n"
        "warning: line 2, column 1: the rule spare is not used\n"
        "warning: line 2, column 17: the rule more is not used\n"
    )
    state = made.after("")
    assert state is not None and state.next == b"a"


def test_number_of_warnings_is_limited(grammar: Make) -> None:
    lines = grammar("start ::= 'a';" + "".join(f"r{i} ::= 'x';" for i in range(50))).log().splitlines()
    assert len(lines) == 21 and lines[-1] == "warning: the same applies to 30 more rules"


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("start ::= s '.'; s ::= s s | 'a';", "a" * 60 + ".", "."),
        ("start ::= " + "'a'? " * 20 + "'.';", "a" * 20 + ".", "a" * 21 + "."),
        ("start ::= #'[a-z]*' #'[a-z]*' #'[a-z]*' '!';", "q" * 80 + "!", "q1!"),
        ("start ::= x '.'; x ::= y | 'a'; y ::= z | 'b'; z ::= x | y;", "b.", "ab."),
        ("start ::= x* '.'; x ::= 'a'? | x x | '';", "aaaaaa.", "b."),
        ("start ::= x '.'; x ::= '(' x ')' | '';", "(" * 60 + ")" * 60 + ".", "(()."),
        ("start ::= l '.'; l ::= l 'a' | 'a';", "a" * 120 + ".", "."),
        ("start ::= r '.'; r ::= 'a' r | 'a';", "a" * 120 + ".", "."),
    ],
)
def test_ambiguous_cyclic_and_nullable_grammars(grammar: Make, text: str, good: str, bad: str) -> None:
    made = grammar(text)
    assert made.accepts(good) and not made.accepts(bad)


def test_nested_brackets(grammar: Make) -> None:
    deep = "start ::= " + "('a' | " * 3000 + "'b'" + ")?" * 3000 + " '.';"
    assert grammar(deep).accepts("b.")
    assert "brackets are nested deeper than 10000" in grammar("start ::= " + "(" * 10001 + "'a'").refusal()


def test_a_large_grammar(grammar: Make) -> None:
    rules = "".join(f"r{i} ::= 'k{i};' r{i + 1} | 'l{i};';\n" for i in range(3000))
    made = grammar(f"start ::= r0;\n{rules}r3000 ::= 'end';")
    assert made.accepts("k0;k1;l2;") and not made.accepts("k0;l2;")
    assert "there is no rule for r3000" in grammar(f"start ::= r0;\n{rules}").refusal()
