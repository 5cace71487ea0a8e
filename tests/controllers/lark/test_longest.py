"""The ends of lexemes: the longest complete match, or what a lazy repetition ends, as in `re` and Lark."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

import lark
import pytest

from aicirt.contract.errors import ControllerFailed
from lab.oracles.grammars.walk import Controller
from tests.thorough import cases

Make = Callable[[str], Controller]

COMMENTS = r"""
start: WORD*
WORD: /[a-z]+/
COMMENT: /\/\*(.|\n)*?\*\//
%ignore COMMENT
%ignore /[ \n]+/
"""


@pytest.mark.parametrize(
    ("text", "accepted", "rejected"),
    [
        (
            'start: STEM SUFFIX\nSTEM: "list" | "listen"\nSUFFIX: "ed"',
            ["listed", "listened"],
            ["listen", "list", "listenned"],
        ),
        (
            COMMENTS,
            ["", "/* a */", "/* a */ b", " b", "a /* * / ** */ b", "/**//**/"],
            ["/* a", "*/", "/* a */ /", "/*/"],
        ),
        (
            'start: N ".." N\nN: /[0-9]+(\\.[0-9]+)?/',
            ["1..2", "1.5..2", "1..2.5"],
            ["1.5.2", "1...2", "1.", "1.."],
        ),
        # the longer lexeme is complete only much later
        ('start: (A | B | C)*\nA: "a"\nB: "b"\nC: /ab+c/', ["abbb", "abbbc", "aab", "abbbcb"], ["c", "abcc"]),
        # several longer lexemes at a time
        (
            'start: (A | B)* "!"\nA: /a(a{4}b)?/\nB: /b(a{3}c)?/',
            ["aaaa!", "aaaaab!", "baaa!", "baaac!"],
            ["c!"],
        ),
        # a value that is no lexeme follows one that might have gone on
        (
            'start: T value | T value "}}"\nT: "<" | /<\\{[^}]*\\}>/\nvalue: %json {"type": "object"}',
            ["<{}", '<{"a": 1}', '<{"a": 1}}}'],
            ["<{}>", "<"],
        ),
        # only such a value can complete the text
        (
            'start: T value | U /b+/ "b"\nT: "<"\nU: /<[a-z]+!/\nvalue: %json {"type": "boolean"}',
            ["<true", "<false"],
            ["<true!", "<"],
        ),
        # many lexemes might be longer, few are after one more byte
        (
            'start: (unit | "bx")*\nunit: "a" | '
            + " | ".join(f'"a{a}{b}!"' for a in "bcdef" for b in "uvwxyzlm"),
            ["abx", "abx!", "abxabx!", "abxbx"],
            ["abu", "abxb"],
        ),
    ],
)
def test_where_lexemes_end(grammar: Make, text: str, accepted: list[str], rejected: list[str]) -> None:
    made = grammar(text)
    assert [one for one in accepted if not made.accepts(one)] == []
    assert [one for one in rejected if made.accepts(one)] == []


def random_pattern(rng: random.Random, depth: int = 3) -> str:
    """Returns a pattern over a, b with greedy and lazy repetitions."""
    kind = rng.randrange(6) if depth else 0
    if kind < 2:
        return rng.choice(["a", "b", "[ab]", "ab", "."])
    if kind == 2:
        return "(?:" + "|".join(random_pattern(rng, depth - 1) for _ in range(rng.randint(2, 3))) + ")"
    if kind == 3:
        return random_pattern(rng, depth - 1) + random_pattern(rng, depth - 1)
    count = rng.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}"])
    return f"(?:{random_pattern(rng, depth - 1)}){count}{rng.choice(['', '?', '?'])}"


@pytest.mark.parametrize("seed", range(cases(1, 8)))
def test_lazy_lexemes_end_where_re_ends_them(grammar: Make, seed: int) -> None:
    rng, compared = random.Random(seed), 0
    texts = ["".join(t) for n in range(7) for t in itertools.product("ab", repeat=n)]
    while compared < 25:
        pattern = random_pattern(rng).replace(".", "[ab]")
        if not re.search(r"[*+?}]\?", pattern):
            continue
        made = grammar(f'start: LEXEME "!"\nLEXEME: /{pattern}/')
        try:
            made.start()
        except ControllerFailed as error:
            assert "must not be empty" in error.message, pattern
            continue
        ends = {text: re.match(pattern, text + "!") for text in texts}
        expected = {text for text, found in ends.items() if found and found.end() == len(text)}
        assert {text for text in texts if made.accepts(text + "!")} == expected, pattern
        compared += 1


@pytest.mark.parametrize(
    ("text", "alphabet"),
    [
        (COMMENTS, "/* a"),
        ('start: STEM SUFFIX\nSTEM: "ab" | "abcd"\nSUFFIX: "c" | "ce"', "abcde"),
        ('start: (NUMBER | DOTS)*\nNUMBER: /[0-9]+(\\.[0-9]+)?/\nDOTS: ".."', "1."),
        ("start: TAG*\nTAG: /<.*?>/", "<>a"),
        ('start: (STRING | COMMA)*\nSTRING: /"([^"]|"")*?"/\nCOMMA: ","', '",a'),
        ("start: A B?\nA: /a+?b|a+/\nB: /b+/", "ab"),
    ],
)
def test_texts_of_lark(grammar: Make, text: str, alphabet: str) -> None:
    """Grammars in which a lexeme's terminal is the only one that matches there."""
    made, reference = grammar(text), lark.Lark(text, parser="lalr", lexer="contextual")

    def parses(one: str) -> bool:
        try:
            reference.parse(one)
        except lark.exceptions.LarkError:
            return False
        return True

    texts = ["".join(t) for n in range(6) for t in itertools.product(alphabet, repeat=n)]
    assert [one for one in texts if parses(one) != made.accepts(one)] == []


@pytest.mark.parametrize("pattern", [r"a*?\b", r"(?:a*?$)", r"(?=b)a*?", r"(?!c)a+?b"])
def test_a_lazy_repetition_with_an_unclear_end_is_refused(grammar: Make, pattern: str) -> None:
    assert "write it without the ?" in grammar(f'start: A "!"\nA: /{pattern}/').refusal()
    assert "write it without the ?" in grammar('start: A "!"\nA: /a*?b/ & /[ab]*/').refusal()


@pytest.mark.parametrize("pattern", ["(?:a*?)*", "(?:(?:ab)*?|b){2,}", "a+?(?:b?)+"])
def test_a_repetition_of_what_may_be_empty_is_refused_beside_a_lazy_one(grammar: Make, pattern: str) -> None:
    """`re` ends such a repetition after an empty part, which depends on how it searches."""
    assert "must not be empty" in grammar(f'start: A "!"\nA: /{pattern}/').refusal()


def test_a_rule_that_is_lazy_may_have_lazy_repetitions(grammar: Make) -> None:
    made = grammar('start: x "!"\nx[lazy]: /a+?b*?/')
    assert made.accepts("a!") and not made.accepts("ab!") and not made.accepts("aa!")


def test_guards_are_bounded(grammar: Make) -> None:
    """Each `a` might begin one of many longer lexemes, so that there are ever more of them at a time."""
    longer = " | ".join(f"/a[ab]{{{n}}}c/" for n in range(2, 60))
    made = grammar(f'start: (A | B | C)*\nA: "a"\nB: "b"\nC: {longer}')
    state = made.after("ab" * 50)
    assert state is not None and state.end and state.next == b"abc"


def test_guards_do_not_add_up(grammar: Make) -> None:
    """After each byte, other lexemes might become longer."""
    rng = random.Random(1)
    made = grammar('start: (A | B | C)*\nA: "a"\nB: "b"\nC: /a[ab]{40}c/')
    guest = made.start()
    state = made.state(guest, [])
    for _ in range(1000):
        state = made.state(guest, [rng.choice(b"abb")])
    assert state.end and state.next.startswith(b"ab")


def test_a_lexeme_with_many_states_may_end_far_away(grammar: Make) -> None:
    made = grammar('start: A "!"\nA: /.*(?:a.{8}|b.{9}|c.{7})x/')
    assert made.accepts("abcabacabcx!") and not made.accepts("cbbbbbbbbbx!")
