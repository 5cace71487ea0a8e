"""Changes of logits by penalties, biases, `min_tokens` and `bad_words`: compared with their definitions."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyaici.engines.engine import Request
from pyaici.engines.sampling import Sampling, Tally

SIZE = 12
tokens = st.lists(st.integers(0, SIZE - 1), max_size=12)
floats = st.floats(-2, 2, width=32)


@settings(deadline=None)
@given(
    prompt=tokens,
    answer=tokens,
    presence=floats,
    frequency=floats,
    repetition=st.floats(0.5, 2, width=32),
    bias=st.dictionaries(st.integers(0, SIZE + 3), st.floats(-100, 100, width=32), max_size=4),
    min_tokens=st.integers(0, 8),
    bad=st.lists(st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=3).map(tuple), max_size=4),
    seed=st.integers(0, 100),
)
def test_changes_follow_the_definitions(
    prompt: list[int],
    answer: list[int],
    presence: float,
    frequency: float,
    repetition: float,
    bias: dict[int, float],
    min_tokens: int,
    bad: list[tuple[int, ...]],
    seed: int,
) -> None:
    ends, stop = (0, 3), 5
    logits = np.random.default_rng(seed).normal(0, 3, SIZE).astype(np.float32)
    sampling = Sampling(
        presence_penalty=presence,
        frequency_penalty=frequency,
        repetition_penalty=repetition,
        logit_bias=tuple(bias.items()),
        min_tokens=min_tokens,
        stop_token_ids=(stop,),
        bad_words=tuple(bad),
    )
    want = logits.astype(np.float64)
    for token in range(SIZE):
        want[token] += bias.get(token, 0.0)
        if len(answer) < min_tokens and token in (*ends, stop):
            want[token] = -math.inf
        for *before, last in bad:
            if token == last and answer[len(answer) - len(before) :] == before:
                want[token] = -math.inf
        if token in prompt or token in answer:
            want[token] = want[token] / repetition if want[token] > 0 else want[token] * repetition
        want[token] -= frequency * answer.count(token) + presence * (token in answer)
    found = logits.copy()
    changes = sampling.changes(Tally(prompt, answer), answer, ends).within(SIZE)
    found[changes.tokens] = changes.apply(found[changes.tokens])
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    if not sampling.changes_logits:
        assert np.array_equal(found, logits)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_p": 1.5}, "min_p is 1.5; it must be 0 to 1"),
        ({"typical_p": 0}, "typical_p is 0; it must be above 0 and at most 1"),
        ({"top_n_sigma": math.inf}, "top_n_sigma is inf; it must be 0 or a positive number"),
        ({"presence_penalty": 3}, "presence_penalty is 3; it must be -2 to 2"),
        ({"frequency_penalty": math.nan}, "frequency_penalty is nan"),
        ({"repetition_penalty": 0}, "repetition_penalty is 0; it must be above 0 and at most 100"),
        ({"logit_bias": ((1, 1e9),)}, "biases must be -100 to 100"),
        ({"min_tokens": -1}, "must not be negative"),
        ({"bad_words": ((),)}, "an entry of bad_words has no token"),
        ({"stop_token_ids": tuple(range(2000))}, "stop_token_ids has more than 1024 entries"),
    ],
)
def test_values_out_of_range_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Sampling(**options)


@settings(deadline=None)
@given(prompt=tokens, answer=tokens, cut=st.integers(0, 12), more=tokens)
def test_counts_follow_what_is_taken_away(
    prompt: list[int], answer: list[int], cut: int, more: list[int]
) -> None:
    tally = Tally(prompt, answer)
    twin = tally.copy()
    kept = answer[: max(0, len(answer) - cut)]
    tally.add(answer[len(kept) :], -1)
    tally.add(more)
    every = range(SIZE + 2)
    for found, has in ((tally, kept + more), (twin, answer)):
        assert found.answered == len(has)
        want = [[some.count(token) for token in every] for some in (prompt, has)]
        assert found.counts(np.array(every)).tolist() == want


def test_a_token_costs_little_after_many_others() -> None:
    many = random.Random(1).sample(range(150_000), 100_000)
    prompt, answer = many[:50_000], many[50_000:]
    sampling = Sampling(repetition_penalty=1.1, presence_penalty=0.1, logit_bias=((7, 1.0),))
    tally = Tally(prompt, answer)
    start = time.thread_time()
    for token in range(20):
        tally.add([token])
        sampling.changes(tally, answer[-64:], (2,))
    assert time.thread_time() - start < 0.8  # 0.1 s; counting all tokens again took 5 s


def test_beam_search_takes_no_changes() -> None:
    with pytest.raises(ValueError, match="beam search takes neither penalties"):
        Request("x", beams=2, sampling=Sampling(presence_penalty=1))
