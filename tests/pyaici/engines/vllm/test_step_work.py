"""The work of our code in a step of vLLM's engine."""

from __future__ import annotations

from typing import Any

import pytest

from tests.pyaici.engines.vllm.step_work import Steps

pytestmark = [pytest.mark.slow, pytest.mark.simulated_worker]
#: bytecodes of a step with two controlled sequences, and of each further one; these may only fall
MAX_OF_TWO, MAX_OF_EACH = 5000, 1150


def test_a_controlled_sequence_takes_few_bytecodes_in_a_step(llm: Any) -> None:
    """Counts bytecodes of Python 3.11, the only version in the environment of vLLM."""
    steps = Steps(llm)
    counts = {}
    for batch in (2, 10):
        with steps.running(batch, controlled=True) as step:
            counts[batch] = steps.bytecodes(step)
    assert counts[2] <= MAX_OF_TWO and counts[10] - counts[2] <= 8 * MAX_OF_EACH, counts
