"""Tokens of the vocabulary in rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aicirt.wasm import Program
from lab.oracles.grammars.walk import Controller, allowed_after
from lab.runners.host import Vocab

Make = Callable[[str], Controller]

MARKS = [b"<think>", b"<a>", b"</think>", b"<eos>"]
THINK, A, CLOSE, EOS = range(256, 260)


@pytest.fixture(scope="module")
def marked(program: Callable[[str], Program]) -> Make:
    """All bytes are tokens; there are special tokens, and `</think>` is a token of text."""
    vocab = Vocab([*(bytes([byte]) for byte in range(256)), *MARKS], special=[THINK, A], eos=[EOS])
    return lambda text: Controller(program("gbnf"), vocab, text)


def walk(made: Controller, tokens: list[int]) -> list[int] | None:
    return allowed_after(made, tokens, EOS)


def test_special_tokens_are_allowed_by_the_rules(marked: Make) -> None:
    made = marked('root ::= (<think> [a-c]* <[257]>)? "y" word\nword ::= <think>{0,2} [xz]')
    assert walk(made, []) == [ord("y"), THINK]
    assert walk(made, [THINK]) == [*b"abc", A]
    assert walk(made, [THINK, *b"cab", A]) == [ord("y")]
    assert walk(made, [ord("y"), THINK]) == [*b"xz", THINK]
    assert walk(made, [ord("y"), THINK, THINK]) == [*b"xz"]
    assert walk(made, [ord("y"), ord("z")]) == [EOS]


def test_text_around_a_special_token_is_not_joined_with_it(marked: Make) -> None:
    made = marked('root ::= "a" <think> "b" | "a" <a> "c"')
    assert walk(made, [ord("a")]) == [THINK, A]
    assert walk(made, [ord("a"), A]) == [ord("c")]


def test_a_token_of_text_is_its_text(marked: Make) -> None:
    made = marked('root ::= "a" </think> "b"')
    assert walk(made, [ord("a")]) == [ord("<"), CLOSE]
    assert walk(made, [*b"a</think>"]) == [ord("b")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("root ::= <thin>", "line 1, column 10: the vocabulary has no token <thin>: if it is text, write"),
        ("root ::= <think", "line 1, column 10: the name of this token is not closed: `>` is missing"),
        ("root ::= <[999]>", "line 1, column 12: this number is too large: at most 259 is possible"),
        ("root ::= <eos>", "line 1, column 10: token 259 ends the sequence: leave it out"),
        ("root ::= !<[256]>", "line 1, column 10: all tokens but one (`!`) are not supported"),
    ],
)
def test_messages(marked: Make, text: str, message: str) -> None:
    assert marked(text).refusal().startswith(message)
