"""The differences between the versions of vLLM that AICI supports. Nothing else asks for a version.

Each difference is told by what vLLM has, once, when this module is imported.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.engine import EngineCoreOutput

#: Whether outputs carry an error, which `AsyncLLM` raises for the client: from 0.33 on. Before, only the stop
#: reason says why a request has failed, and `frontend.events` has to turn it into an exception.
ERRORS_ARE_CARRIED = "error" in EngineCoreOutput.__struct_fields__


def carry_error(output: Any, why: str, *, of_runtime: bool) -> None:
    """Has a client of `AsyncLLM` get an exception. `output`: the last EngineCoreOutput of a failed request.

    `of_runtime`: the client may try again; otherwise the request was wrong. Without `AsyncLLM` nothing is
    raised.
    """
    if ERRORS_ARE_CARRIED:
        from vllm.outputs import RequestError

        code = "controllers_unavailable" if of_runtime else "validation_error"
        output.error = RequestError(code, why, retryable=of_runtime)


def hash_lookahead(scheduler: Any) -> int:
    """Returns how many tokens after a block its hash depends on: from 0.33 on some, with EAGLE's drafts."""
    return getattr(scheduler, "num_hash_lookahead_tokens", 0)


def allow_all_ends_of_thinking(structured: Any) -> None:
    """Lets a request end its thinking with any token that the parser knows, such as that of a tool call.

    From 0.33 on, vLLM asks the grammar which of them may come, once for a request, and forbids the others.
    While the model thinks there is no controller to ask. The token is sampled again, under its mask.
    `structured`: a StructuredOutputRequest.
    """
    structured.masked_reasoning_end_ids = ()
