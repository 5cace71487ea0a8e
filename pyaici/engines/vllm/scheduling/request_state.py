"""Changes vLLM's requests in place: grammars, waits, and tokens to remove or append."""

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
from pyaici.engines.vllm.scheduling.caches import continues_from

if TYPE_CHECKING:
    import torch

    from pyaici.engines.vllm.scheduling.connection import Prepared
    from pyaici.engines.vllm.scheduling.controlled import Controlled
    from pyaici.engines.vllm.scheduling.driver import ControllerDriver


log = logging.getLogger("vllm.aici")


class ControllerGrammar(StructuredOutputGrammar):  # type: ignore[misc,unused-ignore]
    """A grammar whose masks come from a controller's answers; the scheduler mixin gets the answers."""

    def __init__(self, controlled: Controlled) -> None:
        self._controlled = controlled
        #: number of drafts before the position of the next mask
        self._behind = 0

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Fills row `batch_index` of `bitmask`, int32 [rows, ceil(V / 32)]."""
        try:
            self._controlled.fill(bitmask[batch_index].numpy(), self._behind)
        except Exception as error:
            log.exception("request %s has no mask", self._controlled.request_id)
            self._controlled.fail(ResultError(repr(error)))
            bitmask[batch_index] = -1  # the sampled token will be discarded

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        """Returns all drafts if they can be followed. The controller's answers decide later."""
        one = self._controlled
        return tokens if one.follows and one.steady and not one.thinking else []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        """Advances the mask over drafts. vLLM also calls this after sampling, when the answer is used up."""
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
    """Asks controllers about drafts. Drafts that are not allowed, or not followed, become padding.

    vLLM itself does the same with drafts that a grammar forbids. `requests`: the scheduler's requests, by id.
    `output`: a SchedulerOutput.
    """
    scheduled: dict[str, list[int]] = output.scheduled_spec_decode_tokens
    drafts = {
        request_id: strip_speculative_padding(tokens)
        for request_id, tokens in scheduled.items()
        if (controlled := driver.requests.get(request_id)) is not None
        and not controlled.thinking
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
    """Keeps a request waiting until its grammar is ready."""
    structured = StructuredOutputRequest(params=None)
    structured.grammar = grammar
    structured.reasoning_ended = True
    request.structured_output_request = structured
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR


def release(request: Any, grammar: Any) -> None:
    """Gives a waiting request its grammar, so that vLLM can schedule it."""
    request.structured_output_request.grammar = grammar


@contextlib.contextmanager
def suspended(requests: list[Any]) -> Iterator[None]:
    """Hides the grammars of these requests within the `with` body, so that vLLM does not schedule them.

    Outside of it, passes in progress may still need the masks.
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
    """Returns a future of `make(future.result())`. Errors and cancellation of `future` become its error."""
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
    """Returns a failed future."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def move(scheduler: Any, request: Any, backtrack: int, tokens: Sequence[int]) -> None:
    """Removes the last `backtrack` tokens and appends `tokens`. The last token's logits are computed again.

    `request` (v1.request.Request) is RUNNING, or has been preempted since it was scheduled.
    """
    keep = len(request._all_token_ids) - backtrack
    in_cache = min(request.num_computed_tokens - request.num_output_placeholders, keep)
    computed = min(in_cache, keep + len(tokens) - 1)
    # if not: a block that other requests may share would change, or a cache no longer has what is needed
    in_place = (
        request.status == RequestStatus.RUNNING
        and keep >= _hashed_tokens(scheduler, request)
        and continues_from(scheduler, request, computed)
    )
    _rewrite(scheduler, request, keep, tokens)
    if not in_place:
        if request.status == RequestStatus.RUNNING:  # otherwise it holds no blocks
            # it gives up its blocks and gets others; vLLM finds by their hashes what it has kept
            _put_back(scheduler, request)
        request.status = RequestStatus.WAITING
        return
    scheduler.running.remove(request)
    request.num_computed_tokens = computed
    request.spec_token_ids = []
    request.drop_stale_output = True
    request.num_stale_output_tokens = request.num_in_flight_tokens
    request.num_output_placeholders = 0
    request.status = RequestStatus.WAITING
    scheduler._enqueue_waiting_request(request)


def discards(request: Any) -> bool:
    """Returns whether vLLM will discard the token of the last scheduled pass: the request has moved since.

    The tokens of that pass are the last that vLLM counts as in flight.
    """
    stale: int = request.num_stale_output_tokens
    return bool(request.drop_stale_output) and 0 < stale == request.num_in_flight_tokens


def suspend(scheduler: Any, request: Any) -> None:
    """Frees the blocks of a request that is RUNNING or has been preempted; it waits while in `suspended`.

    Its blocks can be found again by their hashes, unless other requests need the room.
    """
    if request.status == RequestStatus.RUNNING:
        _put_back(scheduler, request)
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    scheduler.deferred_waiting.add(request)


@contextlib.contextmanager
def unending(request: Any) -> Iterator[None]:
    """Lets no token end the request within the `with` body; its limits still do."""
    parameters = request.sampling_params
    request.sampling_params = endless = copy.copy(parameters)
    endless._eos_token_id, endless.stop_token_ids = None, []
    try:
        yield
    finally:
        request.sampling_params = parameters


def branch(request: Any, parent: Any, tokens: Sequence[int]) -> None:
    """Makes a request that has not begun start with `tokens`, the tokens of `parent` at the fork."""
    written = parent.num_output_tokens - len(parent._all_token_ids) + len(tokens)
    request.max_tokens = parent.max_tokens - written
    if request.sampling_params.min_tokens:
        request.sampling_params = copy.copy(request.sampling_params)  # vLLM shares it between the choices
        request.sampling_params.min_tokens = max(0, request.sampling_params.min_tokens - written)
    request._all_token_ids[:] = tokens
    request.prompt_token_ids = list(tokens)
    request.num_prompt_tokens = len(tokens)
    del request.block_hashes[:]
    request.update_block_hashes()


def _rewrite(scheduler: Any, request: Any, keep: int, tokens: Sequence[int]) -> None:
    """Keeps the first `keep` tokens and appends `tokens` to the output.

    A prompt that becomes shorter leaves room for as many more tokens of output.
    """
    everything = request._all_token_ids
    if keep < len(everything):
        del request.block_hashes[keep // scheduler.hash_block_size :]
    del everything[keep:]
    everything.extend(tokens)
    prompt = min(request.num_prompt_tokens, max(keep, 1))
    if keep < request.num_prompt_tokens:
        request.max_tokens += request.num_prompt_tokens - prompt
        request.prompt_token_ids = everything[:prompt]
        request.num_prompt_tokens = prompt
    request._output_token_ids[:] = everything[prompt:]
    request.update_block_hashes()


def _put_back(scheduler: Any, request: Any) -> None:
    """Preempts a request as if memory were short: it gives up its blocks and waits."""
    scheduler.running.remove(request)
    scheduler._preempt_request(request, time.monotonic(), drop_stale_output=True)
    if request.prefill_stats is None:  # otherwise vLLM would count its cached output as cached prompt
        request.num_preemptions -= 1


def _hashed_tokens(scheduler: Any, request: Any) -> int:
    """Returns how many tokens of the request are in blocks that can be found by their hashes."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    return max(
        (manager.num_cached_block.get(request.request_id, 0) * manager.block_size for manager in managers),
        default=0,
    )
