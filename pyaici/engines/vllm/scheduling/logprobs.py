"""Reports to controllers about sampled tokens, from the numbers that vLLM's workers report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aicirt.contract.abi import Verb
from aicirt.contract.messages import StepInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pyaici.client.results import MidResult
    from pyaici.engines.vllm.workers.rows import Logprobs


@dataclass(frozen=True, slots=True)
class Measured:
    """The fields of `StepInput` about a sampled token."""

    logprob: float = math.nan
    allowed_mass: float = math.nan
    top: list[tuple[int, float]] | None = None

    def report(self, control: int, tokens: Sequence[int], backtrack: int = 0, *, sampled: bool) -> StepInput:
        """Returns the report of a step. Without `sampled` it says nothing about the token."""
        if not sampled:
            return StepInput(control, list(tokens), backtrack)
        return StepInput(
            control,
            list(tokens),
            backtrack,
            True,
            logprob=self.logprob,
            allowed_mass=self.allowed_mass,
            top=self.top,
        )


UNKNOWN = Measured()


def is_measured(answer: MidResult, *, has_post: bool) -> bool:
    """Returns whether a controller with this answer needs numbers about the token that is sampled next.

    `has_post`: it has a post_process.
    """
    top = answer.row is not None and answer.row.top_k > 0
    return answer.verb == Verb.SAMPLE and (top or (has_post and not answer.skip_post))


def measure(
    answer: MidResult,
    masses: NDArray[np.float32] | None,
    logprobs: Logprobs | None,
    position: int,
) -> Measured:
    """Returns the numbers about the token at this position of a pass, which `answer` has allowed.

    `masses`, `logprobs`: what the workers have reported for the request; None if nothing.
    """
    if masses is None or logprobs is None or position >= len(masses):
        return UNKNOWN
    count = 0 if answer.row is None else answer.row.top_k
    top = None
    if count:
        tokens, values = logprobs.tokens[position, :count], logprobs.values[position, :count]
        top = list(zip(tokens.tolist(), values.tolist(), strict=True))
    mass = min(1.0, math.exp(float(masses[position])))
    return Measured(float(logprobs.sampled[position]), mass, top)
