"""The masks of every kind of recognizer equal brute force over all tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.wasm import Program
from lab.runners.host import BITMASK, Guest, Vocab
from tests.controllers.sdk.recognizer.automata import Automaton, allowed, automata, free_kinds, vocabularies
from tests.thorough import cases

#: guests/table.cpp: functional; with `dead`; with signatures; byte stack; by virtual calls; StackRecognizer
WAYS = range(6)


@given(automata(), vocabularies(), st.sampled_from(WAYS), st.data())
@settings(max_examples=cases(200, 600), deadline=None)
def test_masks_equal_brute_force(
    program: Callable[[str], Program], automaton: Automaton, vocab: Vocab, way: int, data: st.DataObject
) -> None:
    guest = Guest(program("table"), vocab, automaton.argument(way))
    state, tokens = 1, []
    for _ in range(3):
        mid = guest.step(tokens).row
        assert mid.kind == BITMASK and mid.bits is not None
        assert mid.allowed == allowed(automaton, vocab, state)
        assert mid.bits[vocab.size // 32 :].tolist() == [
            int(word) & ((1 << (vocab.size & 31)) - 1) for word in mid.bits[vocab.size // 32 :]
        ], "bits behind the vocabulary"
        signature = int(guest.take_log(), 16)
        assert {bit for bit in range(32) if signature >> bit & 1} <= free_kinds(automaton, state)
        text = [token for token in mid.allowed if token not in vocab.special]
        if not text:
            break
        tokens = [data.draw(st.sampled_from(text))]
        state = automaton.run(vocab.tokens[tokens[0]], state)
    guest.instance.close()


@pytest.mark.parametrize("way", WAYS)
def test_wrong_guess_is_backtracked(program: Callable[[str], Program], way: int) -> None:
    """Spaces, capitals and digits lead to a state that allows all text; letters of the rest do not."""
    free = [2] * 256
    start = [0] * 256
    for byte in b" ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789e":
        start[byte] = 2
    start[0xE4] = 2
    automaton = Automaton([[0] * 256, start, free], [0, 0, 1])
    texts = [
        "e",
        "f",
        "fe",
        "Se",
        "0f",
        " f",
        "中",
        "é",
        "ef",
        "g",
        "\n",
        " \n",
        "x" * 255,
        " " + "x" * 255,
        "f",
    ]
    tokens = [*(text.encode() for text in texts), b"\xe4\xb8", b"\xc3", b"<eos>"]
    vocab = Vocab(tokens, eos=[len(tokens) - 1])
    guest = Guest(program("table"), vocab, automaton.argument(way))
    assert guest.step().row.allowed == allowed(automaton, vocab, 1)
    assert vocab.eos[0] in guest.step([0]).row.allowed
    guest.instance.close()
