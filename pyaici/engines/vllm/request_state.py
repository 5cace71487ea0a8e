"""Changes requests of vLLM in place: grammars, waits, tokens that are taken back or appended."""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from vllm.v1.request import RequestStatus
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar
from vllm.v1.structured_output.request import StructuredOutputRequest
from vllm.v1.structured_output.utils import strip_speculative_padding

from aicirt.contract.errors import ResultError

if TYPE_CHECKING:
    import torch

    from pyaici.engines.vllm.connection import Prepared
    from pyaici.engines.vllm.controlled import Controlled
    from pyaici.engines.vllm.driver import ControllerDriver


log = logging.getLogger("vllm.aici")


class ControllerGrammar(StructuredOutputGrammar):  # type: ignore[misc,unused-ignore]
    """The scheduler mixin talks to controllers; here vLLM only asks which tokens are allowed."""

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


def follow_drafts(driver: ControllerDriver, requests: Mapping[str, Any], output: Any) -> None:
    """Asks controllers about drafts. Those that are not allowed, or not followed, become padding.

    That is what vLLM itself makes of drafts that a grammar forbids. `requests`: the scheduler's, by id;
    `output`: a SchedulerOutput.
    """
    scheduled: dict[str, list[int]] = output.scheduled_spec_decode_tokens
    drafts = {
        request_id: strip_speculative_padding(tokens)
        for request_id, tokens in scheduled.items()
        if request_id in driver.requests
        and (request := requests.get(request_id)) is not None
        and not request.is_prefill_chunk
    }
    driver.guess(drafts)
    invalid = output.num_invalid_spec_tokens = output.num_invalid_spec_tokens or {}
    for request_id in drafts:
        tokens, known = scheduled[request_id], len(driver.requests[request_id].guesses)
        if known < len(tokens):
            scheduled[request_id] = [*tokens[:known], *[-1] * (len(tokens) - known)]
            invalid[request_id] = len(tokens) - known


def hold(request: Any, grammar: Future[Any]) -> None:
    """Keeps a request waiting until its grammar is there."""
    structured = StructuredOutputRequest(params=None)
    structured.grammar = grammar
    structured.reasoning_ended = True
    request.structured_output_request = structured
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR


def release(request: Any, grammar: Any) -> None:
    """Has it wait no longer."""
    request.structured_output_request.grammar = grammar


@contextlib.contextmanager
def suspended(requests: list[Any]) -> Iterator[None]:
    """While this holds their grammars seem not to be ready, so they are not scheduled.

    Not for longer: passes that are under way may still need their masks.
    """
    grammars = [request.structured_output_request.grammar for request in requests]
    try:
        for request in requests:
            request.structured_output_request.grammar = None
        yield
    finally:
        for request, grammar in zip(requests, grammars, strict=True):
            request.structured_output_request.grammar = grammar


def then(future: Future[Prepared], make: Callable[[Prepared], Any]) -> Future[Any]:
    """A future of what is made of another's result."""
    made: Future[Any] = Future()

    def done(_: Any) -> None:
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            made.set_exception(error or RuntimeError("the request has ended"))
        else:
            made.set_result(make(future.result()))

    future.add_done_callback(done)
    return made


def failed(error: Exception) -> Future[Any]:
    """A future that has failed."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


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
    """Preempts a request as when memory is short: it gives up its blocks and waits."""
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
