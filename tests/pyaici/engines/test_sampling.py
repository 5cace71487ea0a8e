"""Changes of logits by penalties, biases, `min_tokens` and `bad_words`: compared with their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyaici.engines.engine import Request
from pyaici.engines.sampling import Sampling

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
    changes = sampling.changes(prompt, answer, ends).within(SIZE)
    found[changes.tokens] = changes.apply(found[changes.tokens])
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    if not sampling.changes_logits:
        assert np.array_equal(found, logits)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"min_p": 1.5}, "min_p is 1.5; it must be 0 to 1"),
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


def test_beam_search_takes_no_changes() -> None:
    with pytest.raises(ValueError, match="beam search takes neither penalties"):
        Request("x", beams=2, sampling=Sampling(presence_penalty=1))
