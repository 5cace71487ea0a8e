"""A constraint follows a sequence, and returns the same masks whether they are new or cached."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import CAP_TOKENIZER, STOP
from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import Program
from lab.runners.host import BITMASK, Guest, Vocab
from tests.controllers.sdk.recognizer.automata import Automaton, allowed, automata, vocabularies
from tests.thorough import cases

#: guests/table.cpp: the ways, and the unit of the cache
CONSTRAINT, ANY_CONSTRAINT, UNIT = 6, 7, 512


@given(automata(), vocabularies(), st.sampled_from([0, 1, 2, 5, 255]), st.data())
@settings(max_examples=cases(130, 400), deadline=None)
def test_cached_masks(
    program: Callable[[str], Program], automaton: Automaton, vocab: Vocab, budget: int, data: st.DataObject
) -> None:
    guest = Guest(program("table"), vocab, automaton.argument(CONSTRAINT, budget), capabilities={})
    state, tokens = 1, []
    for _ in range(12):
        expected = allowed(automaton, vocab, state)
        text = [token for token in expected if token not in vocab.special]
        may_end = automaton.flags[state] & 1
        if not expected and not may_end:
            with pytest.raises(ControllerFailed, match="allows no token here"):
                guest.step(tokens)
            break
        mid = guest.step(tokens).row
        assert int(guest.take_log()) <= budget * UNIT
        if may_end and not text:
            assert mid.verb == STOP
            break
        assert mid.kind == BITMASK and mid.allowed == expected
        if not text:
            break
        tokens = [data.draw(st.sampled_from(text))]
        state = automaton.run(vocab.tokens[tokens[0]], state)
    guest.instance.close()


@pytest.mark.parametrize("budget", [255, 100, 40])
def test_cached_masks_of_a_large_vocabulary(program: Callable[[str], Program], budget: int) -> None:
    """Many states with similar and different masks, more than the cache holds, some visited often."""
    printable = [bytes([byte]) for byte in range(32, 127)]
    tokens = [a + b + c for a in printable for b in printable for c in printable[::8]] + printable
    vocab = Vocab([*tokens, b"<eos>"], eos=[len(tokens)])
    assert vocab.size > 1 << 16
    count = 16
    rows = [[0] * 256]
    for state in range(1, count):
        # nearly all text; very little; every second character
        kinds = [
            set(range(32, 126)) - {32 + state},
            {40 + state, 60 + state, 32},
            set(range(32 + state % 2, 126, 2)),
        ]
        rows.append([1 + (state * 5 + b) % (count - 1) if b in kinds[state % 3] else 0 for b in range(256)])
    automaton = Automaton(rows, [0] + [1] * (count - 1))
    expected = {state: allowed(automaton, vocab, state) for state in range(1, count)}
    guest = Guest(program("table"), vocab, automaton.argument(CONSTRAINT, budget), capabilities={})
    rng = random.Random(1)
    state, step, kept = 1, [], set()
    for _ in range(300):
        assert guest.step(step).row.allowed == expected[state]
        kept.add(int(guest.take_log()))
        # to a few states most of the time, to the others now and then
        some = rng.sample(expected[state][:-1], 30)
        often = [token for token in some if automaton.run(tokens[token], state) < 5]
        step = [rng.choice(often if often and rng.random() < 0.9 else some)]
        state = automaton.run(tokens[step[0]], state)
    assert max(kept) <= budget * UNIT and len(kept) > 5


def test_tokens_that_do_not_fit(program: Callable[[str], Program]) -> None:
    rows = [[0] * 256, [0] * 256, [0] * 256]
    rows[1][ord("a")] = 2
    rows[2][ord("a")] = 1
    automaton = Automaton(rows, [0, 0, 0b0011])  # in state 2 eos and bos are allowed
    vocab = Vocab([b"a", b"b", b"<eos>", b"<s>", b"<pad>"], eos=[2], bos=3, pad=4, special=[3, 4])
    argument = automaton.argument(CONSTRAINT, 64)
    for tokens, message in (([1], '"b" was appended'), ([2], "<eos>"), ([3], "<s>"), ([0, 4], "<pad>")):
        with pytest.raises(ControllerFailed, match=message):
            Guest(program("table"), vocab, argument, capabilities={}).step(tokens)
    guest = Guest(program("table"), vocab, argument, capabilities={})
    assert guest.step([0]).row.allowed == [0, 2, 3]
    assert guest.step([3]).row.allowed == [0, 2, 3], "bos changes nothing"
    assert guest.step([2]).row.verb == STOP
    with pytest.raises(ControllerFailed):
        guest.step([0])


@given(automata(), vocabularies(), st.data())
@settings(max_examples=cases(30, 100), deadline=None)
def test_any_constraint_behaves_like_the_constraint_it_holds(
    program: Callable[[str], Program], automaton: Automaton, vocab: Vocab, data: st.DataObject
) -> None:
    held, plain = (
        Guest(program("table"), vocab, automaton.argument(way, 64)) for way in (ANY_CONSTRAINT, CONSTRAINT)
    )
    state, tokens, ended = 1, [], False
    for _ in range(8):
        try:
            expected = plain.step(tokens).row
        except ControllerFailed as failure:
            with pytest.raises(ControllerFailed, match=re.escape(failure.message)):
                held.step(tokens)
            break
        mid = held.step(tokens).row
        assert (mid.verb, mid.kind, mid.token, mid.allowed, mid.tokens) == (
            *(expected.verb, expected.kind, expected.token),
            *(expected.allowed, expected.tokens),
        )
        assert held.take_log() == f"{ended:d}{ended or automaton.flags[state] & 1:d}\n"
        if mid.verb == STOP:
            break
        tokens = mid.tokens or [data.draw(st.sampled_from(mid.allowed or [mid.token]))]
        ended = tokens[-1] in vocab.eos
        for token in tokens:
            if token not in vocab.special:
                state = automaton.run(vocab.tokens[token], state)
    held.instance.close()
    plain.instance.close()


def test_forced_text_is_cached(program: Callable[[str], Program]) -> None:
    """The tokenizer is called once per state."""
    rows = [[0] * 256 for _ in range(4)]
    for byte in b"xyz":
        rows[1][byte] = 2
    rows[2][ord("a")] = 3
    rows[3][ord("b")] = 1
    automaton = Automaton(rows, [0, 1, 0, 0])
    vocab = Vocab([b"x", b"y", b"z", b"a", b"b", b"ab", b"<eos>"], eos=[6])
    guest = Guest(
        program("table"), vocab, automaton.argument(CONSTRAINT, 64), capabilities={CAP_TOKENIZER: 1}
    )
    assert guest.step().row.allowed == [0, 1, 2, 6]
    assert guest.step([0]).row.token == 5
    asked = len(guest.tokenized)
    assert asked > 0
    assert guest.step([5]).row.allowed == [0, 1, 2, 6]
    assert guest.step([1]).row.token == 5
    assert len(guest.tokenized) == asked
