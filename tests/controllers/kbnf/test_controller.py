"""The controller with an engine: forced text, warmed masks, and the end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aicirt.contract.abi import SAMPLE, SPLICE, STOP
from aicirt.wasm import Program
from lab.oracles.grammars.expressions import (
    Call,
    Choice,
    Grammar,
    Repeat,
    Sequence,
    Terminal,
    literal,
    text,
)
from lab.oracles.grammars.kbnf import kbnf
from lab.oracles.grammars.oracle import Oracle
from lab.oracles.grammars.vocabularies import LETTERS, byte_vocab, few_tokens
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Guest


def play(program: Program, grammar: str, wish: bytes) -> tuple[bytes, list[str]]:
    """Runs with forced text; the model takes the next byte of its wish, or the first allowed byte."""
    vocab = byte_vocab()
    guest, written, verbs, tokens, sampled = (
        Guest(program, vocab, grammar),
        b"",
        list[str](),
        list[int](),
        False,
    )
    for _ in range(60):
        row = guest.step(tokens, sampled=sampled).row
        if row.verb == STOP:
            return written, verbs
        if row.verb == SPLICE:
            tokens, sampled = row.tokens, False
            verbs.append("forced " + b"".join(vocab.tokens[t] for t in tokens).decode())
        else:
            assert row.verb == SAMPLE
            choices = row.allowed or [row.token]
            wanted = wish[len(written)] if len(written) < len(wish) else -1
            tokens, sampled = [wanted if wanted in choices else min(choices)], True
            verbs.append(f"sampled {vocab.tokens[tokens[0]].decode()}")
        written += b"".join(vocab.tokens[t] for t in tokens)
    raise AssertionError("it goes on")


def test_forced_text_ends_the_output_where_the_text_is_complete(program: Callable[[str], Program]) -> None:
    made = program("kbnf")
    assert play(made, "start ::= 'hello';", b"") == (b"hello", ["forced hello"])
    assert play(made, "start ::= 'x' 'yes' | 'z' 'no' '!';", b"z") == (b"zno!", ["sampled z", "forced no!"])


def test_output_ends_after_forced_text_even_if_more_could_follow(program: Callable[[str], Program]) -> None:
    written, verbs = play(program("kbnf"), "start ::= 'q' 'uit' 'x'?;", b"quitx")
    assert written == b"quit" and verbs == ["forced quit"]


@pytest.mark.parametrize("calls", [1, 2000])
def test_warmed_masks_are_the_same(program: Callable[[str], Program], calls: int) -> None:
    """This includes the first state, in which the text is complete but needs a byte."""
    letters = Terminal("regex", text("ab"))
    item = Choice((literal("c"), letters, Sequence((literal("a"), Call("start"), literal("a")))))
    grammar: Grammar = {"start": Repeat(item, 0, None)}
    vocab = few_tokens()

    class Warm(Controller):
        def start(self) -> Guest:
            guest = super().start()
            guest.warm(calls)
            return guest

    made = Warm(program("kbnf"), vocab, kbnf(grammar))
    assert made.compare(Oracle(grammar, "start", LETTERS), most=30, stops=True) == 30
