"""Errors and warnings for invalid, odd and large grammars, with their positions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab.oracles.grammars.walk import Controller

Make = Callable[[str | bytes], Controller]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'lark needs a grammar as its argument, such as start: "yes" | "no"'),
        ("// nothing", "the grammar has no start rule, start"),
        ('strat: "a"', "the grammar has no start rule, start; did you mean strat?"),
        ('"a"', 'line 1, column 1: a rule, `name: ...`, or a directive such as %ignore is expected, not `"`'),
        ('start "a"', "line 1, column 1: a rule, `name: ...`, or a directive such as %ignore is expected"),
        (
            'start: "a" ; "b"',
            "line 1, column 12: a text, a pattern, a name or a bracket is expected, not `;`",
        ),
        ('start: "a', "line 1, column 8: this text is not closed: its quote is missing"),
        ("start: 'a'", "line 1, column 8: texts need double quotes"),
        ('start: "é\\q"', "line 1, column 10: unknown escape in a text; allowed are \\n \\r"),
        ('start: "\\ud800"', "line 1, column 9: this is half a character: a surrogate needs the other one"),
        ("start: /a", "line 1, column 8: this pattern is not closed: `/` is missing"),
        ("start: /a)(b/", "line 1, column 10: in this pattern"),
        ("start: /a(?>b)/i", "line 1, column 10: in this pattern atomic groups"),
        ("start: /a/g", "line 1, column 11: the flag `g` is unknown; allowed are i, m, s, x and u"),
        (
            'start: ("a"\nx: "b"',
            "line 2, column 1: `)` for the bracket of line 1, column 8 is expected, not `x`",
        ),
        ('start: "a")', "line 1, column 11: a text, a pattern, a name or a bracket is expected, not `)`"),
        (
            'start: "b".."a"',
            "line 1, column 8: this range is empty: its first character comes after its last",
        ),
        ('start: "ab".."c"', "line 1, column 8: a range has one character on each side"),
        ('start: "".."c"', "line 1, column 8: a range has a character on each side"),
        ('start: "a"{x}', "line 1, column 11: a repetition is {3}, {3,}, {,5} or {3,5}"),
        ('start: "a"~3..2', "line 1, column 11: this repetition is empty: its minimum is above"),
        ('start: "a"~99999', "line 1, column 12: this number is too large: at most 10000 is possible"),
        ("start: <think>", "line 1, column 8: the vocabulary has no token <think>: if it is text, write"),
        ("start: @other", "line 1, column 8: other grammars cannot be named here"),
        (
            'start: "a"\nstart: "b"',
            "line 2, column 1: there is a definition of start already, in line 1, column",
        ),
        ("start: itme\nitem: /a/", "line 1, column 8: there is no rule for itme; did you mean item?"),
        ("start: WORDS\nWORD: /a/", "line 1, column 8: there is no terminal WORDS; did you mean WORD?"),
        (
            "start: A\nA: B\nB: c\nc: /a/",
            "line 3, column 4: a terminal cannot name the rule c: it is a regular",
        ),
        (
            'start: A\nA: "(" A ")" | "x"',
            "line 2, column 1: the terminal A contains itself: nested brackets",
        ),
        ("start: A\nA: B\nB: A", "line 2, column 1: the terminal A contains itself"),
        ('start: "a" start', "line 1, column 1: start matches no text: each of its alternatives needs"),
        ('start: "a" & "b"', "line 1, column 8: `&` is only possible in terminals"),
        ('start: ~"a"', "line 1, column 9: `~` is only possible in terminals"),
        ('start: A\nA: "a" ~', "line 2, column 4: `~` must be followed by an expression"),
        ('start: l{"a"}\nl{x}: x', "line 1, column 9: templates are not supported: write a rule for each"),
        ('start: "a"\nl{x}: x', "line 2, column 2: templates are not supported: write a rule for each use"),
        (
            "%declare A\nstart: A",
            "line 1, column 1: %declare is not supported: a terminal without a definition",
        ),
        ("%override start: A", "line 1, column 1: `%override` is unknown; allowed are %ignore and %import"),
        (
            "%import common.WSP\nstart: WSP",
            "line 1, column 16: common has no terminal `WSP`: there are DIGIT,",
        ),
        (
            "%import python.NAME",
            "line 1, column 9: only `common` can be imported from, as in %import common.WS",
        ),
        ("%import common.WS -> ws", "line 1, column 24: the name of a terminal, which begins with a capital"),
        (
            'start: x\nx[lazy, stop="a"]: /b/',
            "line 2, column 9: `stop` removes its text, which a grammar cannot do: suffix=",
        ),
        ("start: x\nx[max_tokens=3]: /b/", "line 2, column 3: `max_tokens` counts tokens, but a grammar"),
        ("start: x\nx[last]: /b/", "line 2, column 3: `last` is not an attribute; allowed are lazy, suffix="),
        (
            "start: x\nx[lazy=1]: /b/",
            "line 2, column 3: `lazy=` is not an attribute; allowed are lazy, suffix=",
        ),
        (
            "start: x\nx[suffix]: /b/",
            "line 2, column 3: `suffix` is not an attribute; allowed are lazy, suffix=",
        ),
        ("start: x\nx[lazy]: y\ny: /b/", "line 2, column 10: a terminal cannot name the rule y"),
        ("start: A\nA: %json {}", "line 2, column 4: %json cannot be in a terminal"),
        ('start: A\nA: %lark { start: "a" }', "line 2, column 4: %lark cannot be in a terminal"),
        ('start: %lark { start: "a"', "line 1, column 14: this grammar is not closed: `}` is missing"),
        ("start: %lark x", "line 1, column 14: a grammar in braces is expected, not `x`"),
        ('start: "a"\n  %lark { start:\n "é" x }', "line 3, column 6: there is no rule for x"),
        (
            'start: %lark { start: "a" }\n%ignore " "',
            "line 1, column 16: a nested grammar must ignore the same text as the grammar around it",
        ),
        (
            'start: %lark { start: "a"\n%ignore " " }',
            "line 2, column 1: a nested grammar must ignore the same text as the grammar around it",
        ),
        (
            'start: %regex {"x": 1}',
            "line 1, column 8: %regex has one of substring_chars, substring_words and",
        ),
        (
            'start: A "!"\nA: "a" B\nB: %regex {"substring_words": "' + "ab " * 46 + '"}',
            "line 3, column 4: %regex with more than 90 pieces is only possible alone in a terminal",
        ),
        (
            'start: A\nA: "a" %regex {"substring_chars": "' + "ab" * 46 + '"}',
            "line 2, column 8: %regex with more than 90 pieces is only possible alone in a terminal",
        ),
        ("start: %regex [", "line 1, column 15: an object in braces is expected, not `[`"),
        ("start: %regex {", "line 1, column 15: this object is not closed: `}` is missing"),
    ],
)
def test_a_message_says_what_is_wrong_and_where(grammar: Make, text: str, message: str) -> None:
    assert grammar(text).refusal().startswith(message)


def test_a_grammar_must_be_utf8(grammar: Make) -> None:
    message = grammar(b'start:\n "\xff"').refusal()
    assert message == "line 2, column 3: the grammar is not well-formed UTF-8"


def test_warnings(grammar: Make) -> None:
    made = grammar(
        '%llguidance {}\nstart: "a" | endless | A\nendless: "b" endless\nspare: "c"\n'
        "A: /a^b/ | /c/ & /d/\nB: C\nC: /x/"
    )
    assert made.log() == (
        "warning: line 1, column 1: %llguidance is ignored\n"
        "warning: line 5, column 1: no text matches this\n"
        "warning: line 3, column 1: endless matches no text, so what needs it is removed\n"
        "warning: line 4, column 1: the rule spare is not used\n"
        "warning: line 6, column 1: the terminal B is not used\n"
    )
    state = made.after("")
    assert state is not None and state.next == b"a"


@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ('start: s "."\ns: s s | "a"', "a" * 60 + ".", "."),
        ("start: " + "x? " * 20 + '"."\nx: "a" | "b" x', "ba" * 20 + ".", "a" * 21 + "."),
        ("start: " + "A? " * 20 + '"."\nA: /[a-c]/', "c" * 20 + ".", "a" * 21 + "."),
        ('start: x "."\nx: y | "a"\ny: z | "b"\nz: x | y', "b.", "ab."),
        ('start: ((x{0,30}){0,30}){0,30} "."\nx: "a" | "b" x', "aaabaa.", "b."),
        ('start: A "."\nA: /[a-z]/{10,5000}', "a" * 12 + ".", "a" * 9 + "."),
    ],
)
def test_ambiguous_cyclic_and_nullable_grammars(grammar: Make, text: str, good: str, bad: str) -> None:
    made = grammar(text)
    assert made.accepts(good) and not made.accepts(bad)


def test_terminals_that_grow_when_expanded(grammar: Make) -> None:
    doubled = "\n".join(f"T{i}: T{i + 1} T{i + 1}" for i in range(40))
    assert "too long with its terminals expanded" in grammar(f'start: T0\n{doubled}\nT40: "a"').refusal()


def test_nested_grammars_are_few(grammar: Make) -> None:
    deep = "start: " + '"a" %lark { start: ' * 9 + '"b"' + "}" * 9
    many = "start: " + '"a" %lark { start: "b" } ' * 65
    for text in (deep, many):
        assert (
            "there are more than 64 grammars in this one, or one is deeper than 8" in grammar(text).refusal()
        )


def test_nested_brackets(grammar: Make) -> None:
    deep = "start: " + '("a" | "c" ' * 2000 + '"b"' + ")" * 2000
    assert grammar(deep).accepts("cca") and not grammar(deep).accepts("ccb")
    assert "brackets are nested deeper than 10000" in grammar("start: " + "(" * 10001 + '"a"').refusal()


def test_a_large_grammar(grammar: Make) -> None:
    rules = "\n".join(f'r{i}: "k{i};" r{i + 1} | "l{i};" r0' for i in range(1000))
    made = grammar(f'start: r0\n{rules}\nr1000: "end"')
    assert made.after("k0;k1;l2;k0;k1;") is not None and made.after("k0;k2;") is None


def test_many_texts(grammar: Make) -> None:
    made = grammar("start: WORD | " + " | ".join(f'"w{i}"' for i in range(5000)) + '\nWORD: "x"')
    assert made.accepts("w4999") and made.accepts("x") and not made.accepts("w5000")
