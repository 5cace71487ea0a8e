"""Errors and warnings for invalid, odd and large grammars, with their positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.oracles.grammars.walk import Controller

Make = Callable[[str | bytes], Controller]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'gbnf needs a grammar as its argument, such as root ::= "yes" | "no"'),
        ("# nothing", "the grammar has no start rule, root"),
        ('rot ::= "a"', "the grammar has no start rule, root; did you mean rot?"),
        ('root "a"', "line 1, column 1: a rule, `name ::= ...`, is expected, not `root`"),
        (
            'root ::= "a" ; "b"',
            "line 1, column 14: a text, a class, a name, a parenthesis or `|` is expected",
        ),
        ('root ::= "a', "line 1, column 10: this text is not closed: its quote is missing"),
        ('root ::= "a\n"', "line 1, column 10: this text is not closed: its quote is missing"),
        ('root ::= "é\\q"', "line 1, column 12: unknown escape; allowed are \\n \\r"),
        ('root ::= "\\x4"', "line 1, column 11: this escape needs 2 hexadecimal digits"),
        ('root ::= "\\ud800"', "line 1, column 11: this is half a character: a surrogate"),
        ("root ::= [a", "line 1, column 10: this class is not closed: `]` is missing"),
        ("root ::= [z-a]", "line 1, column 11: this range is empty: its first character comes after its"),
        ("root ::= []", "line 1, column 10: this class is empty; any character is `.`"),
        (
            'root ::= ("a"\nx ::= "b"',
            "line 2, column 1: `)` for the bracket of line 1, column 10 is expected",
        ),
        (
            'root ::= "a")',
            "line 1, column 13: a text, a class, a name, a parenthesis or `|` is expected, not",
        ),
        ('root ::= "a"{x}', "line 1, column 13: a repetition is {3}, {3,} or {3,5}"),
        ('root ::= "a"{,3}', "line 1, column 13: a repetition is {3}, {3,} or {3,5}"),
        ('root ::= "a"{3,2}', "line 1, column 13: this repetition is empty: its minimum is above"),
        ('root ::= "a"{99999}', "line 1, column 14: this number is too large: at most 10000 is possible"),
        ('root ::= * "a"', "line 1, column 10: a text, a class, a name, a parenthesis or `|` is expected"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: there is a rule root already, in line 1, column 1"),
        ("root ::= itme\nitem ::= [a]", "line 1, column 10: there is no rule for itme; did you mean item?"),
        ('root ::= "a" root', "line 1, column 1: root matches no text: each of its alternatives needs"),
    ],
)
def test_a_message_says_what_is_wrong_and_where(grammar: Make, text: str, message: str) -> None:
    assert grammar(text).refusal().startswith(message)


def test_a_grammar_must_be_utf8(grammar: Make) -> None:
    message = grammar(b'root ::=\n "\xff"').refusal()
    assert message == "line 2, column 3: the grammar is not well-formed UTF-8"


def test_warnings(grammar: Make) -> None:
    made = grammar('root ::= "a" | endless\nendless ::= "b" endless\nspare ::= more\nmore ::= "c"')
    assert made.log() == (
        "warning: line 2, column 1: endless matches no text, so what needs it is removed\n"
        "warning: line 3, column 1: the rule spare is not used\n"
        "warning: line 4, column 1: the rule more is not used\n"
    )
    state = made.after("")
    assert state is not None and state.next == b"a"


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ('root ::= s "."\ns ::= s s | "a"', "a" * 60 + ".", "."),
        ("root ::= " + "x? " * 20 + '"."\nx ::= [a] | "b" x', "ba" * 20 + ".", "a" * 21 + "."),
        ("root ::= [a-z]* [a-z]* [a-z]* [!]", "q" * 80 + "!", "q1!"),
        ('root ::= x "."\nx ::= y | "a"\ny ::= z | "b"\nz ::= x | y', "b.", "ab."),
        ('root ::= (("a"?)*)* "."', "aaaaaa.", "b."),
        ('root ::= ((("a"{0,30}){0,30}){0,30}){0,30} "."', "a" * 50 + ".", "b."),
        ('root ::= ((("x" r{0,30}){0,30}){0,30}){0,30} "."\nr ::= "a" | "b" r', "xbaax.", "a."),
        ("root ::= [a-z]{10,5000} [.]", "a" * 12 + ".", "a" * 9 + "."),
    ],
)
def test_ambiguous_cyclic_and_nullable_grammars(grammar: Make, text: str, good: str, bad: str) -> None:
    made = grammar(text)
    assert made.accepts(good) and not made.accepts(bad)


def test_nested_brackets(grammar: Make) -> None:
    deep = 'root ::= ("a" | ' + '"c" ("a" | ' * 3000 + '"b"' + ")?" * 3001
    assert grammar(deep).accepts("cca") and not grammar(deep).accepts("ccb")
    assert "brackets are nested deeper than 10000" in grammar("root ::= " + "(" * 10001 + '"a"').refusal()


def test_a_large_grammar(grammar: Make) -> None:
    rules = "\n".join(f'r{i} ::= "k{i};" r{i + 1} | "l{i};" r0' for i in range(3000))
    made = grammar(f'root ::= r0\n{rules}\nr3000 ::= "end"')
    assert made.accepts("k0;k1;l2;" + "".join(f"k{i};" for i in range(3000)) + "end")
    assert not made.accepts("k0;l2;")
