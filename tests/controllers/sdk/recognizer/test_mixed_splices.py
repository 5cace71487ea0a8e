"""A constraint in a controller that also splices by itself, as constraint.hpp describes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aicirt.contract.abi import CAP_FF_TOKENS, CAP_TOKENIZER, SPLICE, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.runners.host import BITMASK, TOKEN, Guest, Mid, Vocab

WORDS = [b"The", b" cat", b" dog", b" sat", b" c", b"at", b"Label:"]
EVERY_WAY = {CAP_FF_TOKENS: 1}
ONE_BY_ONE = {CAP_TOKENIZER: 1}


@pytest.fixture(scope="module")
def vocab() -> Vocab:
    tokens = [*(bytes([b]) for b in range(256)), *WORDS, b"<eos>"]
    return Vocab(tokens, eos=[len(tokens) - 1])


@pytest.fixture
def start(program: Callable[[str], Program], vocab: Vocab) -> Callable[..., Guest]:
    def start(*lines: str, capabilities: dict[int, int] | None = None) -> Guest:
        return Guest(program("mixed"), vocab, "\n".join(lines), capabilities=capabilities)

    return start


def said(guest: Guest, mid: Mid) -> list[bytes]:
    """Forced or spliced tokens, or those that a mask allows."""
    tokens = mid.allowed if mid.kind == BITMASK else [mid.token] if mid.kind == TOKEN else mid.tokens
    return [guest.vocab.tokens[token] for token in tokens]


def ids(vocab: Vocab, *tokens: bytes) -> list[int]:
    return [vocab.tokens.index(token) for token in tokens]


def test_announced_tokens_may_wait(start: Callable[..., Guest], vocab: Vocab) -> None:
    """A label outside the constraint's text stands between two forced pieces."""
    guest = start("The cat sat", "next", "aside Label:", "next", "next", capabilities=ONE_BY_ONE)
    assert said(guest, guest.step().row) == [b"The"]
    assert said(guest, guest.step(ids(vocab, b"The")).row) == [b"Label:"]
    assert said(guest, guest.step(ids(vocab, b"Label:")).row) == [b" cat"]
    assert said(guest, guest.step(ids(vocab, b" cat")).row) == [b" sat"]


def test_next_does_not_change_the_state(start: Callable[..., Guest], vocab: Vocab) -> None:
    guest = start("The cat|The dog", "next twice", "next twice", "next twice")
    assert said(guest, guest.step().row) == [b"The"]
    assert said(guest, guest.step(ids(vocab, b"The")).row) == [b" cat", b" dog"]
    assert guest.step(ids(vocab, b" dog")).row.verb == STOP


def test_own_tokens_replace_announced_ones(start: Callable[..., Guest], vocab: Vocab) -> None:
    guest = start("The cat sat|The dog sat", "next", "own  cat", "next")
    assert said(guest, guest.step().row) == [b"The"]
    mid = guest.step(ids(vocab, b"The")).row
    assert (mid.verb, said(guest, mid)) == (SPLICE, [b" cat"]), "no mask: the controller has chosen"
    assert said(guest, guest.step(ids(vocab, b" cat")).row) == [b" sat"]


@pytest.mark.parametrize("capabilities", [None, EVERY_WAY, ONE_BY_ONE])
def test_own_tokens_may_spell_the_announced_text_differently(
    start: Callable[..., Guest], vocab: Vocab, capabilities: dict[int, int] | None
) -> None:
    guest = start("The cat sat", "next", "next", "next", "next", capabilities=capabilities)
    guest.step()
    guest.step(ids(vocab, b"T", b"h"))
    assert said(guest, guest.step(ids(vocab, b"e")).row)[0].startswith(b" ")
    mid = guest.step(ids(vocab, b" c", b"at")).row
    assert b" sat".startswith(said(guest, mid)[0])


def test_own_tokens_are_checked(start: Callable[..., Guest], vocab: Vocab) -> None:
    guest = start("The cat|The dog", "own Label:", "next")
    guest.step()
    with pytest.raises(
        ControllerFailed, match='the token "Label:" was appended, but the constraint does not'
    ):
        guest.step(ids(vocab, b"Label:"))


def test_tokens_cut_off_by_the_engine_are_announced_again(start: Callable[..., Guest], vocab: Vocab) -> None:
    guest = start("The cat sat", "next", "next")
    assert said(guest, guest.step().row) == [b"The", b" cat", b" sat"]
    assert said(guest, guest.step(ids(vocab, b"The")).row) == [b" cat", b" sat"]
