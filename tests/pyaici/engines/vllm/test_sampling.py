"""Our penalties compared with those of vLLM, on the same logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from vllm.v1.sample.ops.penalties import apply_all_penalties

from pyaici.engines.sampling import Sampling, Tally

pytestmark = pytest.mark.real_worker
SIZE = 100


@pytest.mark.parametrize("seed", range(20))
def test_penalties_equal_those_of_vllm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 4, SIZE).astype(np.float32)
    prompt, answer = (rng.integers(0, SIZE, int(rng.integers(1, 40))).tolist() for _ in range(2))
    presence, frequency = rng.uniform(-2, 2, 2).tolist()
    repetition = float(rng.uniform(0.5, 2))
    sampling = Sampling(presence_penalty=presence, frequency_penalty=frequency, repetition_penalty=repetition)
    ours = logits.copy()
    changes = sampling.changes(Tally(prompt, answer), answer, ())
    ours[changes.tokens] = changes.apply(ours[changes.tokens])
    theirs = apply_all_penalties(
        torch.tensor(logits[None]),
        torch.tensor([prompt]),
        torch.tensor([presence]),
        torch.tensor([frequency]),
        torch.tensor([repetition]),
        [answer],
    )
    np.testing.assert_allclose(ours, theirs[0].numpy(), rtol=1e-5, atol=1e-5)
