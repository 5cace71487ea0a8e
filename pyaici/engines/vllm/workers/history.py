"""Keeps the output of a request apart from its prompt when a controller has moved it.

A moved request is sent to vLLM's workers again. Model runner V1 then takes everything for the prompt, but
penalties, `bad_words` and `min_tokens` depend on what is output. Model runner V2 keeps them apart itself.
"""

from __future__ import annotations

import functools
from typing import Any


def send_output(new: Any, request: Any) -> None:
    """Adds the output of a moved request to the data that its workers get (a NewRequestData).

    Model runner V2 gets it from vLLM.
    """
    if request.num_output_tokens and new.prefill_token_ids is None:
        new.prefill_token_ids = list(request._all_token_ids)


def receive_output(runner: Any) -> None:
    """Makes a model runner of vLLM keep what `send_output` adds. Does nothing for model runner V2."""
    update = getattr(runner, "_update_streaming_request", None)
    if update is None:
        return

    @functools.wraps(update)
    def update_and_keep(request_id: str, new: Any) -> Any:
        state = update(request_id, new)
        if new.prefill_token_ids is not None:
            state.output_token_ids.extend(new.prefill_token_ids[new.prompt_len :])
        return state

    runner._update_streaming_request = update_and_keep
