"""A constraint that starts over answers as a new one does, and has not forgotten what it knew."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import CAP_FF_TOKENS, CAP_TOKENIZER, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.oracles.patterns import Pattern, patterns
from lab.runners.host import BITMASK, Guest, Mid, Vocab
from tests.thorough import cases

WORDS = [b"the", b" the", b"tag", b"other", b"ab", b"abc", b'"', b"],[", b"[[", b"[a", b")]", b"([", b"left"]
WORDS += [b" r", b"right ", b"\xc3", "é".encode(), "中文".encode(), b"12"]


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    tokens = [bytes([byte]) for byte in range(256)] + WORDS
    return Vocab([*tokens, b"<eos>"], eos=[len(tokens)])


#: of the argument of guests/again.cpp: words behind the first
OPTIONS = ["", " late", " whole", " little", " tight", " tight little", " late whole"]
#: its first word, and the rest
SOURCES = [
    ("regex", r"(the |tag|[a-f]{2,9}é?)+"),
    ("regex", r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'),
    ("regex", r'\{"name": "[a-z]{1,8}", "number": [0-9]{1,4}\}'),
    ("choices", "the 12 tags\nthe abc\nthe abc abc\nother\nélan"),
    ("substring", "the tag of the other is é, not 中文中文 or abcabd"),
    ("quotation", "the tag of the other is é, not 中文中文 or abcabd"),
    ("lists", r"[a-c]{1,3}|12|é"),
    (
        "json",
        '{"properties": {"the": {"enum": ["ab", 12, "é"]}, "tag": {"type": "array"}}, "required": ["the"]}',
    ),
    ("kbnf", "start ::= '[' (start | #'[a-c]{1,3}' | 'the ')* ']';"),
    ("gbnf", 'root ::= "[" (root | [a-c] | "the ")* "]"'),
    ("lark", 'start: "[" (start | WORD)* "]"\nWORD: /[a-c]+|the/\n%ignore " "'),
    (
        "yacc",
        '%%\nlist: "[" items "]";\nitems: | items list | items WORD;\nWORD: "/[a-c]+|the/";\nSKIP: "/ +/";',
    ),
    ("brackets", ""),
    ("restarting", ""),
    ("stack", r"([ab]c?)*é{1,3}"),
    ("moves", ""),
]


class Pair:
    """The same texts through a constraint that starts over, and through a new one for each text."""

    def __init__(self, program: Program, vocab: Vocab, words: str, source: str, exact: bool) -> None:
        can = {CAP_TOKENIZER: int(exact), CAP_FF_TOKENS: 1}
        self.vocab = vocab
        self.same = Guest(program, vocab, f"{words}\n{source}", capabilities=can)
        self.anew = Guest(program, vocab, f"{words} anew\n{source}", capabilities=can)

    def step(self, tokens: list[int], *, restart: bool) -> Mid | None:
        """Returns the answer of both guests, which must be equal; None if both fail."""
        said = [self._said(guest, tokens, restart) for guest in (self.same, self.anew)]
        assert said[0] == said[1]
        return self._mid

    def _said(self, guest: Guest, tokens: list[int], restart: bool) -> tuple[object, ...]:
        self._mid: Mid | None = None
        try:
            mid = guest.step(tokens, backtrack=int(restart)).row
        except ControllerFailed as failure:
            return ("failed", failure.message)
        ends = guest.take_log().split()[0]
        self._mid = mid
        return ends, mid.verb, mid.kind, mid.token, mid.allowed, mid.tokens

    def close(self) -> None:
        self.same.instance.close()
        self.anew.instance.close()


def walk(pair: Pair, rng: random.Random, steps: int) -> int:
    """Random texts, given up at random points; how many began."""
    tokens: list[int] = []
    restart, texts = False, 1
    for _ in range(steps):
        mid = pair.step(tokens, restart=restart)
        if mid is None:
            break
        tokens = mid.tokens
        if mid.verb != STOP and not tokens:
            tokens = [rng.choice(mid.allowed)] if mid.kind == BITMASK else [mid.token]
        restart = mid.verb == STOP or rng.random() < 0.12
        if restart:
            texts += 1
            tokens = []
    return texts


@pytest.mark.parametrize("words", OPTIONS)
@pytest.mark.parametrize(("what", "source"), SOURCES)
@pytest.mark.parametrize("exact", [False, True])
def test_restarted_constraint_equals_a_new_one(
    program: Callable[[str], Program], vocab: Vocab, what: str, source: str, words: str, exact: bool
) -> None:
    rng = random.Random(what + source + words)
    pair = Pair(program("again"), vocab, what + words, source, exact)
    assert walk(pair, rng, 150) > 5
    pair.close()


@given(patterns(), st.sampled_from(["", " whole", " tight", " little"]), st.randoms(use_true_random=False))
@settings(max_examples=cases(20, 60), deadline=None)
def test_random_regular_expressions(
    program: Callable[[str], Program], vocab: Vocab, pattern: Pattern, words: str, rng: random.Random
) -> None:
    if not pattern.ours:
        return
    try:
        pair = Pair(program("again"), vocab, rng.choice(["regex", "stack"]) + words, pattern.ours, False)
    except ControllerFailed:
        return  # no text matches it
    walk(pair, rng, 40)
    pair.close()


def test_restart_may_come_with_tokens(program: Callable[[str], Program], vocab: Vocab) -> None:
    """A controller does this when it backtracks over a part of the text."""
    pair = Pair(program("again"), vocab, "choices", "the tag\nthe other\ntagged", exact=True)
    the, tag = WORDS.index(b"the") + 256, WORDS.index(b"tag") + 256
    for tokens in ([], [the], [tag], []):
        assert pair.step(tokens, restart=True) is not None
    pair.close()


@pytest.mark.parametrize("token", [b"x", b"the"])
def test_a_stopped_text_does_not_stop_the_next(
    program: Callable[[str], Program], vocab: Vocab, token: bytes
) -> None:
    guest = Guest(program("again"), vocab, "regex whole\nthe|x", capabilities={})
    number = vocab.tokens.index(token)
    first = guest.step().row.allowed
    assert guest.step([number]).row.verb == STOP
    assert guest.take_log().splitlines()[-1].startswith("11 ")
    assert guest.step(backtrack=1).row.allowed == first
    guest.instance.close()


def test_restart_keeps_the_cache(program: Callable[[str], Program], vocab: Vocab) -> None:
    """Counted by questions to the tokenizer and by the answers that are kept."""
    argument = 'regex\n\\{"name": "[a-z]{1,8}", "number": [0-9]{1,4}\\}'
    guest = Guest(program("again"), vocab, argument, capabilities={CAP_TOKENIZER: 1, CAP_FF_TOKENS: 1})
    asked, kept = [], []
    for _ in range(3):
        guest.tokenized.clear()
        tokens: list[int] = []
        for step in range(40):
            mid = guest.step(tokens, backtrack=int(step == 0)).row
            if mid.verb == STOP:
                break
            tokens = mid.tokens or [mid.token if mid.token >= 0 else mid.allowed[0]]
        asked.append(len(guest.tokenized))
        kept.append(int(guest.take_log().split()[-1]))
    assert asked[0] > 0 and asked[1:] == [0, 0]
    assert 0 < kept[0] <= kept[1] == kept[2], "printed before the last answer of a text is kept"
    guest.instance.close()


def test_constraints_destroyed_before_warming(program: Callable[[str], Program], vocab: Vocab) -> None:
    source = r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"'
    alone, crowd, late = (
        Guest(program("again"), vocab, f"regex{words}\n{source}", capabilities={})
        for words in ("", " crowd", " late")
    )
    assert alone.warm() == crowd.warm() > 3
    assert late.warm() == 1, "there is nothing yet"
    tokens: list[int] = []
    for _ in range(4):
        allowed = [guest.step(tokens).row.allowed for guest in (alone, crowd, late)]
        assert allowed[0] == allowed[1] == allowed[2]
        tokens = allowed[0][:1]
    for guest in (alone, crowd, late):
        guest.instance.close()
