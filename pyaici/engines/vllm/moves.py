"""Changes the tokens of a request that vLLM is running, in place: some are taken back, others appended.

And has a request sit out steps, go on behind an end token, or begin as a copy of another.

vLLM has a way for requests that go on with more input (streaming input sessions): what has been made becomes
prompt, and the request is scheduled anew with the blocks that it holds. The same is done here, in the
scheduler alone, so the workers see nothing but a request that comes again. A splice costs one pass over its
tokens and the one before.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from typing import Any

from vllm.v1.request import RequestStatus


def move(scheduler: Any, request: Any, backtrack: int, tokens: Sequence[int]) -> None:
    """Takes `backtrack` tokens back and appends `tokens`; logits of the last token will be computed again.

    `request` (v1.request.Request) is RUNNING, or has been preempted since it was scheduled. Its counters
    begin anew: all it has is prompt from now on, and `max_tokens` is what is left.
    """
    keep = len(request._all_token_ids) - backtrack
    in_cache = min(request.num_computed_tokens - request.num_output_placeholders, keep)
    hashed = _hashed_tokens(scheduler, request)
    _rewrite(scheduler, request, keep, tokens)
    if request.status != RequestStatus.RUNNING:  # it holds no blocks
        request.status = RequestStatus.WAITING
        return
    if keep < hashed:
        # a block that others may share would change: the request gets others, most of them by their hashes
        _put_back(scheduler, request)
        request.status = RequestStatus.WAITING
        return
    scheduler.running.remove(request)
    request.num_computed_tokens = max(0, min(in_cache, len(request._all_token_ids) - 1))
    request.spec_token_ids = []
    request.drop_stale_output = True
    request.num_stale_output_tokens = request.num_in_flight_tokens
    request.num_output_placeholders = 0
    request.status = RequestStatus.WAITING
    scheduler._enqueue_waiting_request(request)


def suspend(scheduler: Any, request: Any) -> None:
    """Takes its blocks from a request that is RUNNING, or has been preempted; it waits while `suspended`.

    They can be found again by their hashes, unless others need the room.
    """
    _rewrite(scheduler, request, len(request._all_token_ids), ())
    if request.status == RequestStatus.RUNNING:
        _put_back(scheduler, request)
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    scheduler.deferred_waiting.add(request)


@contextlib.contextmanager
def unending(request: Any) -> Iterator[None]:
    """Meanwhile no token ends the request, but its limits do."""
    parameters = request.sampling_params
    request.sampling_params = endless = copy.copy(parameters)
    endless._eos_token_id, endless.stop_token_ids = None, []
    try:
        yield
    finally:
        request.sampling_params = parameters


def branch(request: Any, parent: Any, tokens: Sequence[int]) -> None:
    """Has a request that has not begun begin with these tokens, which `parent` had when it was forked."""
    request.max_tokens = (
        parent.max_tokens - parent.num_output_tokens + len(parent._all_token_ids) - len(tokens)
    )
    request._all_token_ids[:] = tokens
    request.prompt_token_ids = list(tokens)
    request.num_prompt_tokens = len(tokens)
    del request.block_hashes[:]
    request.update_block_hashes()


def _rewrite(scheduler: Any, request: Any, keep: int, tokens: Sequence[int]) -> None:
    """Keeps so many tokens, appends others, and makes all of it prompt."""
    length = len(request._all_token_ids)
    request.max_tokens -= keep - request.num_prompt_tokens + len(tokens)
    del request._all_token_ids[keep:]
    if keep < length:
        del request.block_hashes[keep // scheduler.hash_block_size :]
    request._output_token_ids.clear()
    request._all_token_ids.extend(tokens)
    request.prompt_token_ids = list(request._all_token_ids)
    request.num_prompt_tokens = len(request.prompt_token_ids)
    request.update_block_hashes()


def _put_back(scheduler: Any, request: Any) -> None:
    """As when memory is short: it gives up its blocks and waits."""
    scheduler.running.remove(request)
    scheduler._preempt_request(request, time.monotonic(), drop_stale_output=True)
    request.num_preemptions -= 1


def _hashed_tokens(scheduler: Any, request: Any) -> int:
    """Tokens of the request in blocks that can be found by their hashes."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    return max(
        (manager.num_cached_block.get(request.request_id, 0) * manager.block_size for manager in managers),
        default=0,
    )
