"""`TextTrail`: text that grows and shrinks by tokens, which may split characters."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from pyaici.engines.record import TextTrail

PIECES = [
    b"a",
    b" hello",
    "é".encode(),
    "€".encode()[:1],
    "€".encode()[1:],
    b"\xf0\x9f",
    b"\x98\x80",
    b"\xff",
    b"",
    b"\x80",
]

Steps = st.lists(
    st.one_of(st.lists(st.integers(0, len(PIECES) - 1), max_size=4), st.integers(1, 5)), max_size=30
)


@given(Steps)
def test_shown_text_follows_the_tokens(steps: list[list[int] | int]) -> None:
    trail = TextTrail(PIECES)
    tokens: list[int] = []
    shown = ""
    for step in steps:
        if isinstance(step, int):
            count = min(step, len(tokens))
            removed = trail.backtrack(count)
            assert shown.endswith(removed)
            shown = shown.removesuffix(removed)
            del tokens[len(tokens) - count :]
        else:
            shown += trail.append(step)
            tokens += step
        whole = b"".join(PIECES[t] for t in tokens).decode("utf-8", "replace")
        assert trail.text() == whole
        assert whole.startswith(shown), "shown text must stay correct"
        assert len(whole) - len(shown) <= 1


def test_the_text_after_the_first_tokens() -> None:
    trail = TextTrail(PIECES)
    trail.append([0, 1, 3])
    assert trail.text(1) == " hello\ufffd" and trail.text(2) == "\ufffd" and trail.text(3) == ""
    trail.append([4])
    assert trail.text(1) == " hello€"


def test_copies_are_independent() -> None:
    trail = TextTrail(PIECES)
    trail.append([0, 3])
    copy = trail.copy()
    assert copy.append([4]) == "€" and trail.append([0]) == "\ufffda"
    assert (copy.text(), trail.text()) == ("a€", "a\ufffda")


def test_a_token_costs_the_same_after_any_text() -> None:
    trail = TextTrail(["😀 is a face".encode()] * 50_000)
    start = time.thread_time()
    trail.append(range(50_000))  # the prompt of a model with a long context, in the engine's thread
    for _ in range(5000):
        trail.append([0])
        trail.backtrack(1)
    assert time.thread_time() - start < 3  # 0.2 s; copying the text for each token took 30 s
    assert len(trail.text()) == 50_000 * len("😀 is a face")
