"""Adjacent lexemes: examples, and all short texts of random grammars."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from aicirt.contract.errors import ControllerFailed
from lab.exactness.languages import Lexed
from lab.oracles.grammars.expressions import (
    Grammar,
    cat,
    characters,
    random_grammar,
    random_terminals,
    star,
)
from lab.oracles.grammars.lark import lark
from lab.oracles.grammars.properties import every_rule_has_a_text, is_left_recursive
from lab.oracles.grammars.vocabularies import LETTERS
from lab.oracles.grammars.walk import Controller
from tests.controllers.lark.lexemes import accepts

Make = Callable[[str], Controller]


def test_a_lexeme_goes_on_as_long_as_it_can(grammar: Make) -> None:
    made = grammar('start: A "b"\nA: /a+/')
    assert made.accepts("aab")
    made = grammar('start: A "ab" | "." \nA: /[ab]+/')
    assert not made.accepts("aab") and made.accepts(".")
    state = made.after("")
    assert state is not None and state.next == b".", "what cannot come to an end is not begun"


def test_look_arounds_see_the_lexeme(grammar: Make) -> None:
    made = grammar('start: WORD "."\nWORD: /(?!if$)[a-z]+(?<!s)/')
    assert made.accepts("a.") and made.accepts("iff.")
    assert not made.accepts("if.") and not made.accepts("as.")
    for around in ("/a(?=b)/", "/(?:a|b(?!c))/", "/(?<!a)b/"):
        refused = grammar(f'start: NAME "b"\nNAME: {around}').refusal()
        assert "cannot see what is before or behind a lexeme" in refused


def test_only_terminals_possible_at_a_place_compete(grammar: Make) -> None:
    names = "\nID: /[a-z]+/\n%ignore / +/"
    assert grammar('start: "if" ID' + names).accepts("ifx")
    made = grammar('start: "if" ID | ID "!"' + names)
    assert made.accepts("ifx!") and made.accepts("if x") and not made.accepts("ifx")


def test_all_terminals_that_match_a_lexeme_are_tried(grammar: Make) -> None:
    made = grammar('start: "if" ID | ID "="\nID: /[a-z]+/\n%ignore / +/')
    assert made.accepts("if x") and made.accepts("if =") and made.accepts("if=")


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ('start: y "a" "a"\ny: ("b"? | start) (y | "a") ("a" start | "b"?)', 60),
        # whether a lexeme can come to an end is searched in ever larger columns
        (
            'start: (x x start) | ("abc" "abc")\nx: (y?)+ | (start start)\n'
            'y: ("abc" | start | /(?:b|[bc])(?:a)*/)? | (/(?:b|[bc])(?:a)*/ start)',
            2,
        ),
    ],
)
def test_an_ambiguous_text_does_not_exhaust_the_memory(small: Make, text: str, tokens: int) -> None:
    """Each byte needs new columns, most of which no later text needs."""
    made = small(text)
    for seed in range(2):
        rng = random.Random(seed)
        guest = made.start()
        state = made.state(guest, [])
        for _ in range(tokens):
            state = made.state(guest, [rng.choice(state.tokens)])
        guest.instance.close()


def test_a_lazy_lexeme_ends_for_all(grammar: Make) -> None:
    """No other terminal is complete, or continues, where the lazy lexeme is complete."""
    made = grammar('start: x "!" | Y "?"\nx[lazy]: /a+/\nY: /[ab]+/')
    assert [t for t in ("a!", "a?", "aa?", "ab?", "ba?") if made.accepts(t)] == ["a!", "ba?"]
    text = grammar('start: (end ".")* TEXT\nend[lazy]: TEXT ("<" | "stop")\nTEXT: /(.|\\n)*/')
    state = text.after("Please stop")
    assert state is not None and state.next == b"." and not state.end
    assert text.accepts("st op<.stop.") and not text.accepts("a<b")


def test_ignored_text_separates_lexemes_and_is_not_part_of_them(grammar: Make) -> None:
    made = grammar('start: A A\nA: "x" "y"\n%ignore /[ \\n]+/\n%ignore "#" /[^\\n]*/')
    assert made.accepts("xyxy") and made.accepts("xy #x\n xy")
    assert not made.accepts("x yxy")
    assert made.accepts(" xy xy "), "before the first lexeme and after the last one as well"


def test_parts_with_ignored_text_between_them_are_not_joined(grammar: Make) -> None:
    assert grammar('start: "a" "b"\n%ignore " "').accepts("a b")


BLANK = "\n%ignore / +/"


@pytest.mark.parametrize(
    ("text", "before", "expected"),
    [
        ('start: "a" ("b" "c" | /b.*/ "z") | "d"' + BLANK, "", b" d"),
        ('start: "x" /[b ]+/ "b" | "y"' + BLANK, "", b" y"),
        ('start: "x" (A | B "!") \nA: / +y/\nB: / [ y]*/' + BLANK, "x", b" "),
        ('start: "<" /[^>]+/ ">" | /[a-z ]+/ "z" | "." "z"' + BLANK, "", b" .<"),
        ('start: /b+/ "b" | /[^ab]+/ "a"' + BLANK, "b", b" b"),
        # blanks do not end the comment, but the rules can do without it
        ('start: /#[a-z #]*/? "(" "a" ")"' + BLANK, "", b" #("),
        (
            'start: /#[a-z #]*/? "(" "a" ")"' + BLANK,
            "#y ",
            bytes(b for b in b" #(abcdefghijklmnopqrstuvwxyz"),
        ),
        ('start: /#[a-z #]*/? ("a" "b" | "c")' + BLANK, "", b" ac"),
        # and here they cannot
        ('start: "(" /#[a-z #]*/ "a" | "."' + BLANK, "", b" ."),
        ('start: "(" ("x" /#[a-z #]*/ "a" | "y") | "."' + BLANK, "(", b" y"),
    ],
)
def test_ignored_text_may_not_be_all_that_can_follow(
    grammar: Make, text: str, before: str, expected: bytes
) -> None:
    """A blank ends most lexemes, but not those that contain it, and may begin a lexeme that never ends."""
    state = grammar(text).after(before)
    assert state is not None and state.next == expected


def test_a_grammar_whose_texts_never_end_is_refused(grammar: Make) -> None:
    assert "allows no token here" in grammar('start: "a" ("b" "c" | /b.*/ "z")' + BLANK).refusal()


@pytest.mark.parametrize("seed", range(3))
def test_every_token_leads_to_the_end_of_a_text(grammar: Make, seed: int) -> None:
    """Random grammars whose terminals contain the blanks that they ignore."""
    rng, letters, decided = random.Random(seed), "ab ", 0
    while decided < 60:
        rules = random_grammar(rng, "start", random_terminals(rng, letters))
        space = characters(" ")
        language = Lexed(rules, "start", LETTERS + " ", cat(space, star(space)))
        made, text = grammar(lark(rules) + BLANK), ""
        try:
            made.start()
        except ControllerFailed:
            assert not language.alive(b""), lark(rules)
            continue
        for _ in range(5):
            state = made.after(text)
            assert state is not None and state.end == language.complete(text.encode())
            for letter in LETTERS + " ":
                alive = language.alive((text + letter).encode())
                decided += alive is not None
                assert alive in (None, letter.encode() in state.next), (lark(rules), text, letter)
            if not state.next:
                break
            text += chr(rng.choice(state.next))


def completion(made: Controller, begin: str) -> str | None:
    """Returns a complete text with this beginning, found by following the masks."""
    guest = made.start()
    made.state(guest, [])
    for byte in begin[:-1].encode():
        made.state(guest, [byte])
    queue = [(guest, begin)]
    for guest, text in queue:
        state = made.state(guest, list(text[-1].encode()))
        if state.end:
            return text
        if len(queue) < 100:
            queue += [(guest.fork(byte), text + chr(byte)) for byte in state.next]
    return None


@pytest.mark.parametrize("seed", range(4))
def test_all_short_texts_of_random_grammars(grammar: Make, seed: int) -> None:
    rng, compared = random.Random(seed), 0
    texts = ["".join(t) for n in range(5) for t in itertools.product(LETTERS, repeat=n)]
    while compared < 6:
        rules: Grammar = random_grammar(rng, "start", random_terminals(rng, LETTERS))
        if not every_rule_has_a_text(rules) or is_left_recursive(rules):
            continue
        language = {text for text in texts if accepts(rules, "start", text)}
        made = grammar(lark(rules))
        try:
            made.start()
        except ControllerFailed as error:
            assert not language and "no token" in error.message, lark(rules)
            continue
        compared += 1
        check(made, language, lark(rules), rules)


def check(made: Controller, language: set[str], source: str, rules: Grammar) -> None:
    beginnings = {text[:n] for text in language for n in range(len(text) + 1)}
    prefixes = [""]
    for length in range(4):
        longer = []
        for prefix in prefixes:
            state = made.after(prefix)
            assert state is not None and state.end == (prefix in language), (source, prefix)
            expected = {c for c in LETTERS if prefix + c in beginnings}
            found = set(state.next.decode())
            assert expected <= found, (source, prefix, expected, found)
            for c in found - expected:  # all its texts may be longer than those that were looked at
                whole = completion(made, prefix + c)
                assert whole is None or accepts(rules, "start", whole), (source, prefix + c, whole)
            longer += [prefix + c for c in sorted(found)]
        prefixes = longer[:12] if length < 2 else longer[:6]
