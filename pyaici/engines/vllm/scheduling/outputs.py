"""Outputs from the scheduler mixin to vLLM's clients."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.outputs import LogprobsLists

from pyaici.engines.vllm.frontend.events import KEY, Events


@dataclass(eq=False, slots=True)
class Held:
    """Output that is held back: tokens, and the statistics and events that vLLM sends with them."""

    tokens: list[int] = field(default_factory=list)
    prefill_stats: Any = None
    events: list[Any] = field(default_factory=list)

    def copy(self) -> Held:
        """Returns a copy of the tokens for a fork."""
        return Held(list(self.tokens))


def add_tokens(outputs: Any, request: Any, tokens: list[int]) -> None:
    """Adds an output with tokens that were not sampled."""
    output = EngineCoreOutput(
        request_id=request.request_id, new_token_ids=tokens, new_logprobs=_certain(request, tokens)
    )
    _add(outputs, request, output)


def add_end(outputs: Any, request: Any, why: str | None) -> None:
    """Adds the last output of a request that has ended between two steps."""
    reason = request.get_finished_reason()
    output = EngineCoreOutput(
        request_id=request.request_id,
        new_token_ids=[],
        finish_reason=FinishReason.ERROR if reason is None else reason,  # FinishReason.STOP is 0
        stop_reason=why,
    )
    _add(outputs, request, output)


def keep_back(outputs: Any, held: dict[str, Held]) -> None:
    """Holds back the outputs of held requests. Adds their tokens before the output that ends a request."""
    for group in outputs.values():
        kept = []
        for output in group.outputs:
            one = held.get(output.request_id)
            if one is not None and output.finish_reason is None:
                one.tokens += output.new_token_ids
                one.prefill_stats = one.prefill_stats or output.prefill_stats
                one.events += output.events or ()
                continue
            if one is not None:
                # a separate output, because vLLM omits the last token's text in an output that ends a request
                del held[output.request_id]
                kept.append(
                    EngineCoreOutput(
                        request_id=output.request_id,
                        new_token_ids=one.tokens,
                        prefill_stats=one.prefill_stats,
                        events=one.events or None,
                    )
                )
            kept.append(output)
        group.outputs = kept


def give_reasons(outputs: Any, reasons: dict[str, str]) -> None:
    """Sets the stop reasons of failed requests in their last outputs."""
    for group in outputs.values():
        for output in group.outputs:
            if output.finish_reason is not None and output.request_id in reasons:
                output.stop_reason = reasons.pop(output.request_id)


def add_events(outputs: Any, telling: dict[str, tuple[Any, Events]]) -> None:
    """Adds events to the requests' newest outputs, and forgets requests that have ended."""
    last = {output.request_id: output for group in outputs.values() for output in group.outputs}
    for request_id, (request, events) in list(telling.items()):
        if new := events.take():
            output = last.get(request_id)
            if output is None and not request.is_finished():
                output = EngineCoreOutput(request_id=request_id, new_token_ids=[])
                # before the outputs of children that begin in this step: this output has the fork event
                _add(outputs, request, output, at=0)
            if output is not None:
                output.kv_transfer_params = {**(output.kv_transfer_params or {}), KEY: new}
        if request.is_finished():
            del telling[request_id]


def _certain(request: Any, tokens: list[int]) -> LogprobsLists | None:
    """Returns log-probabilities 0 for forced tokens if the request asks for log-probabilities, else None.

    vLLM expects a row for each token.
    """
    if request.sampling_params.num_logprobs is None:
        return None
    shape = (len(tokens), 1)
    return LogprobsLists(
        np.array(tokens, np.int32).reshape(shape), np.zeros(shape, np.float32), np.ones(len(tokens), np.int32)
    )


def _add(outputs: Any, request: Any, output: EngineCoreOutput, at: int | None = None) -> None:
    client = request.client_index
    if client not in outputs:
        outputs[client] = EngineCoreOutputs(outputs=[])
    others = outputs[client].outputs
    others.insert(len(others) if at is None else at, output)
