"""A constraint that follows a sequence: the same masks whether they are new or remembered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.errors import ControllerFailed
from aicirt.wasm import Program
from tests.controllers.automata import Automaton, allowed, automata, vocabularies
from tests.controllers.host import BITMASK, CAP_TOKENIZER, STOP, Guest, Vocab

CONSTRAINT = 6  # guests/table.cpp


@given(automata(), vocabularies(), st.sampled_from([0, 4, 10, 30, 255]), st.data())
@settings(max_examples=400, deadline=None)
def test_remembered_masks(
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
        assert int(guest.take_log()) <= budget * 16
        if may_end and not text:
            assert mid.verb == STOP
            break
        assert mid.kind == BITMASK and mid.allowed == expected
        if not text:
            break
        tokens = [data.draw(st.sampled_from(text))]
        state = automaton.run(vocab.tokens[tokens[0]], state)
    guest.instance.close()


def test_remembered_masks_of_a_large_vocabulary(program: Callable[[str], Program]) -> None:
    """Many states with like and unlike masks, far more than the cache holds, visited again and again."""
    tokens = [bytes([a, b]) for a in range(32, 127) for b in range(32, 127)] + [
        bytes([a]) for a in range(32, 127)
    ]
    vocab = Vocab([*tokens, b"<eos>"], eos=[len(tokens)])
    count = 20
    rows = [[0] * 256]
    for state in range(1, count):
        row = [0] * 256
        for byte in range(32, 127):
            if (byte * state) % 7 < state % 8 or byte == 32:
                row[byte] = 1 + (state + byte) % (count - 1)
        rows.append(row)
    automaton = Automaton(rows, [0] + [1] * (count - 1))
    guest = Guest(program("table"), vocab, automaton.argument(CONSTRAINT, 255), capabilities={})
    state, step, seen = 1, [], set()
    for number in range(300):
        mid = guest.step(step).row
        expected = allowed(automaton, vocab, state)
        assert mid.allowed == expected
        assert int(guest.take_log()) <= 255 * 16
        seen.add(state)
        text = [token for token in expected if token != vocab.eos[0]]
        step = [text[number * 7919 % len(text)]]
        state = automaton.run(vocab.tokens[step[0]], state)
    assert len(seen) > 10


def test_tokens_that_do_not_fit(program: Callable[[str], Program]) -> None:
    rows = [[0] * 256, [0] * 256, [0] * 256]
    rows[1][ord("a")] = 2
    rows[2][ord("a")] = 1
    automaton = Automaton(rows, [0, 0, 0b0011])  # in state 2 the text may end, and bos may come
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


def test_forced_text_is_remembered(program: Callable[[str], Program]) -> None:
    """The tokenizer is asked once for a state."""
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
