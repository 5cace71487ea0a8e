"""String recognizers, and the older interface of biases after each token."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from aicirt.contract.abi import STOP
from aicirt.wasm import Program
from lab.runners.host import BITMASK, DENSE, Guest, Vocab
from tests.thorough import cases

Places = list[tuple[bool, dict[str, int]]]


@st.composite
def places(draw: st.DrawFn) -> Places:
    count = draw(st.integers(1, 4))
    strings = st.text("abc", min_size=0, max_size=4)
    return [
        (draw(st.booleans()), draw(st.dictionaries(strings, st.integers(0, count - 1), max_size=5)))
        for _ in range(count)
    ]


def reachable(found: Places, text: str) -> tuple[bool, bool]:
    """(may the text go on or end, may it end here), trying all ways to split it into strings."""
    viable = [may_end or any(moves) for may_end, moves in found]
    ways = {(0, "")} if viable[0] else set()
    for letter in text:
        step = set()
        for state, begun in ways:
            for string, following in found[state][1].items():
                if not string.startswith(begun + letter):
                    continue
                if string != begun + letter:
                    step.add((state, begun + letter))
                elif viable[following]:
                    step.add((following, ""))
        ways = step
    return bool(ways), any(not begun and found[state][0] for state, begun in ways)


@given(places(), st.data())
@settings(max_examples=cases(100, 300), deadline=None)
def test_string_recognizer(program: Callable[[str], Program], found: Places, data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.text("abc", min_size=1, max_size=6), max_size=25))
    vocab = Vocab([b"a", b"b", b"c", *(p.encode() for p in pieces), b"<eos>"], eos=[3 + len(pieces)])
    argument = "\n".join(
        f"{number} {may_end:d} " + " ".join(f"{string}>{to}" for string, to in moves.items() if string)
        for number, (may_end, moves) in enumerate(found)
    )
    guest = Guest(program("moves"), vocab, argument, capabilities={})
    text, tokens = "", []
    for _ in range(4):
        if not any(reachable(found, text + letter)[0] for letter in "abc") and not reachable(found, text)[1]:
            break  # nothing is possible: the controller fails, which other tests look at
        mid = guest.step(tokens).row
        allowed = vocab.allowed(lambda token, text=text: reachable(found, text + token.decode())[0])
        if not allowed:
            assert mid.verb == STOP
            break
        assert mid.allowed == allowed + vocab.eos * reachable(found, text)[1]
        tokens = [data.draw(st.sampled_from(allowed))]
        text += vocab.tokens[tokens[0]].decode()
    guest.instance.close()


def test_tokenwise(program: Callable[[str], Program]) -> None:
    vocab = Vocab([b"a", b"b", b"c", b"d", b"<eos>"], eos=[4])
    guest = Guest(program("tokenwise"), vocab, "", prompt=[3, 0])
    mid = guest.step().row
    assert (mid.kind, mid.allowed) == (BITMASK, [1])
    assert guest.step().row.same, "a round without a token"
    assert guest.step([1]).row.allowed == [2]
    assert guest.step([1, 2]).row.allowed == [3]
    assert guest.step([4]).row.verb == STOP


def test_tokenwise_with_biases(program: Callable[[str], Program]) -> None:
    vocab = Vocab([b"a", b"b", b"c"])
    guest = Guest(program("tokenwise"), vocab, "biased", prompt=[0])
    mid = guest.step().row
    assert (mid.kind, mid.biases) == (DENSE, {0: -math.inf, 1: 2.5, 2: -math.inf})
