"""What vLLM takes for a compiled grammar: a controlled request's present mask."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vllm.v1.structured_output.backend_types import StructuredOutputGrammar
from vllm.v1.structured_output.utils import strip_speculative_padding

from aicirt.contract.errors import ResultError

if TYPE_CHECKING:
    import torch

    from pyaici.engines.vllm.conductor import Conductor
    from pyaici.engines.vllm.controlled import Controlled

log = logging.getLogger("vllm.aici")


class ControllerGrammar(StructuredOutputGrammar):  # type: ignore[misc,unused-ignore]
    """The seat hears controllers and tells them of tokens; vLLM only asks here what is allowed."""

    def __init__(self, controlled: Controlled) -> None:
        self._controlled = controlled
        #: drafts behind which the next mask holds
        self._behind = 0

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """`bitmask`: int32 [rows, ceil(V / 32)]."""
        try:
            self._controlled.fill(bitmask[batch_index].numpy(), self._behind)
        except Exception as error:
            log.exception("request %s has no mask", self._controlled.request_id)
            self._controlled.fail(ResultError(repr(error)))
            bitmask[batch_index] = -1  # what is sampled will not count

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """All drafts that can be followed: which are allowed is known when the controller has answered."""
        return tokens if self._controlled.follows and self._controlled.steady else []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """vLLM goes over drafts while it asks for masks; what was sampled comes when answers are used up."""
        if self._controlled.answer is not None:
            self._behind += len(tokens)
        return True

    def rollback(self, num_tokens: int) -> None:
        self._behind -= num_tokens

    def is_terminated(self) -> bool:
        return False

    def reset(self) -> None:
        pass


def follow_drafts(conductor: Conductor, requests: Mapping[str, Any], output: Any) -> None:
    """Asks controllers about drafts. Those that are not allowed, or not followed, become padding.

    That is what vLLM itself makes of drafts that a grammar forbids. `requests`: the scheduler's, by id;
    `output`: a SchedulerOutput.
    """
    scheduled: dict[str, list[int]] = output.scheduled_spec_decode_tokens
    drafts = {
        request_id: strip_speculative_padding(tokens)
        for request_id, tokens in scheduled.items()
        if request_id in conductor.requests
        and (request := requests.get(request_id)) is not None
        and not request.is_prefill_chunk
    }
    conductor.guess(drafts)
    invalid = output.num_invalid_spec_tokens = output.num_invalid_spec_tokens or {}
    for request_id in drafts:
        tokens, known = scheduled[request_id], len(conductor.requests[request_id].guesses)
        if known < len(tokens):
            scheduled[request_id] = [*tokens[:known], *[-1] * (len(tokens) - known)]
            invalid[request_id] = len(tokens) - known
