"""Changes vLLM's requests and outputs in place: waits, kept blocks, moved requests, thinking, outputs."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import numpy as np
from vllm.v1.core.single_type_kv_cache_manager import (
    ChunkedLocalAttentionManager,
    CrossAttentionManager,
    FullAttentionManager,
    MambaManager,
    SinkFullAttentionManager,
    SlidingWindowManager,
)
from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
from vllm.v1.outputs import LogprobsLists
from vllm.v1.request import RequestStatus
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar
from vllm.v1.structured_output.request import StructuredOutputRequest

from aicirt.contract.errors import ArgumentError, ResultError
from pyaici.engines.vllm.frontend import KEY, OF_RUNTIME, Events
from pyaici.engines.vllm.scheduling.controlled import Held
from pyaici.engines.vllm.versions import allow_all_ends_of_thinking, carry_error, hash_lookahead

if TYPE_CHECKING:
    import torch

    from pyaici.engines.connection import Prepared
    from pyaici.engines.vllm.scheduling.controlled import Controlled

log = logging.getLogger("vllm.aici")


# -- waits -----------------------------------------------------------------------------------------


class ControllerGrammar(StructuredOutputGrammar):  # type: ignore[misc,unused-ignore]
    """A grammar whose masks come from a controller's answers; the scheduler mixin gets the answers."""

    def __init__(self, controlled: Controlled) -> None:
        self._controlled = controlled
        #: number of drafts before the position of the next mask
        self._behind = 0

    def fill_bitmask(self, bitmask: torch.Tensor, batch_index: int) -> None:
        """Fills row `batch_index` of `bitmask`, int32 [rows, ceil(V / 32)]."""
        try:
            self._controlled.fill(bitmask.numpy()[batch_index], self._behind)
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


def hold(request: Any, grammar: Future[Any]) -> None:
    """Keeps a request waiting until its grammar is ready."""
    structured = StructuredOutputRequest(params=None)
    structured.grammar = grammar
    structured.reasoning_ended = True
    request.structured_output_request = structured
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR


def give_grammar(request: Any, grammar: Any) -> None:
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


# -- moves -----------------------------------------------------------------------------------------


def move(scheduler: Any, request: Any, backtrack: int, tokens: Sequence[int]) -> None:
    """Removes the last `backtrack` tokens and appends `tokens`. The last token's logits are computed again.

    `request` (v1.request.Request) is RUNNING, or has been preempted since it was scheduled.
    """
    keep = len(request._all_token_ids) - backtrack
    # the keys and values of a drafter depend on the tokens that follow, which may be others now
    in_cache = min(
        request.num_computed_tokens - request.num_output_placeholders, keep - hash_lookahead(scheduler)
    )
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
    stale: int = request.num_stale_output_tokens if request.drop_stale_output else 0
    return bool(0 < stale == request.num_in_flight_tokens)


def uses_nothing(request: Any) -> bool:
    """Returns whether vLLM will discard the tokens of all passes in progress, if there are any."""
    stale: int = request.num_stale_output_tokens if request.drop_stale_output else 0
    return bool(stale == request.num_in_flight_tokens)


def suspend(scheduler: Any, request: Any, *, keep: bool) -> bool:
    """Has a request that is RUNNING or has been preempted wait while it is in `suspended`.

    Returns whether it still holds its blocks, which it does only with `keep`. Otherwise they can be found
    again by their hashes, unless other requests need the room.
    """
    if request.status == RequestStatus.RUNNING:
        if keep:
            move(scheduler, request, 0, ())
        else:
            _put_back(scheduler, request)
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    scheduler.deferred_waiting.add(request)
    return bool(request.num_computed_tokens)


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
        request.sampling_params.min_tokens = max(0, parent.sampling_params.min_tokens - written)
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
        hashed = max(0, keep - hash_lookahead(scheduler))
        del request.block_hashes[hashed // scheduler.hash_block_size :]
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
    """Returns how many tokens of the request the hashes cover by which its blocks can be found."""
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    tokens = max(
        (manager.num_cached_block.get(request.request_id, 0) * manager.block_size for manager in managers),
        default=0,
    )
    return tokens and tokens + hash_lookahead(scheduler)


def continues_from(scheduler: Any, request: Any, computed: int) -> bool:
    """Returns whether the request's blocks hold all that the token after the first `computed` tokens needs.

    Does not check whether other requests may share the blocks. `request` holds blocks; its counters are those
    after a pass.
    """
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    return computed > 0 and all(_holds(manager, request, computed) for manager in managers)


def _holds(manager: Any, request: Any, computed: int) -> bool:
    """Returns whether the blocks of one group of layers hold all that is needed."""
    # exact types: subclasses free or overwrite blocks in ways of their own
    kind = type(manager)
    if kind in (FullAttentionManager, SinkFullAttentionManager, CrossAttentionManager):
        return True
    if kind in (SlidingWindowManager, ChunkedLocalAttentionManager):
        # vLLM has freed the blocks before the window of the last token
        blocks = manager.req_to_blocks[request.request_id]
        first = manager.get_num_skipped_tokens(computed) // manager.block_size
        end = -(-computed // manager.block_size)
        return not any(block.is_null for block in blocks[first:end])
    if kind is MambaManager:
        # There is one state: the one after the last token, or after those that a pass in progress computes.
        # With prefix caching or drafts vLLM keeps several, in places that depend on the last pass.
        return (
            manager.mamba_cache_mode == "none"
            and not manager.num_speculative_blocks
            and not request.num_in_flight_tokens
            and computed == request.num_computed_tokens
        )
    return False


def send_output(new: Any, request: Any) -> None:
    """Adds the output of a moved request to the data that its workers get (a NewRequestData).

    A moved request is sent to the workers again. Model runner V1 would take all of it for the prompt, but
    penalties, `bad_words` and `min_tokens` depend on what is output: see `keep_output` of the workers. Model
    runner V2 gets the output from vLLM.
    """
    if request.num_output_tokens and new.prefill_token_ids is None:
        new.prefill_token_ids = list(request._all_token_ids)


# -- thinking: aici_after_thinking -----------------------------------------------------------------
#
# vLLM's reasoning parser finds the end of the thinking, as it does for vLLM's own grammars. Until then the
# request has no constraint and no running controller.


def begin_thinking(manager: Any, request: Any, template: str) -> None:
    """Makes vLLM's StructuredOutputManager wait for the end of the thinking.

    The request has a controller's grammar (see `hold`). `template`: variables of its chat's template, JSON.
    Raises ArgumentError if the engine finds no end.
    """
    if manager.reasoner_cls is None:
        raise ArgumentError(
            "aici_after_thinking needs a reasoning parser, which finds the end of the thinking: start the "
            "engine with --reasoning-parser (offline: reasoning_parser=...), or leave aici_after_thinking out"
        )
    if manager.enable_in_reasoning:
        raise ArgumentError(
            "aici_after_thinking excludes the engine's option enable_in_reasoning: leave one of them out"
        )
    request.structured_output_request.reasoning_ended = None
    request.structured_output_request.reasoning_parser_kwargs = {"chat_template_kwargs": json.loads(template)}
    allow_all_ends_of_thinking(request.structured_output_request)
    manager._get_reasoner(request)


def thinks(manager: Any, request: Any) -> bool:
    """Returns whether a new request begins with its thinking. The end of its prompt may say otherwise."""
    thinking: bool = manager._get_constraint_bounds(request, ()).constraint_start > 0
    if not thinking:
        request.structured_output_request.reasoning_ended = True
    return thinking


def tokens_of_thinking(manager: Any, request: Any, tokens: Sequence[int]) -> int | None:
    """Returns how many of the sampled tokens belong to the thinking; None if it goes on after all of them.

    `tokens` are not yet part of the request.
    """
    start: int = manager._get_constraint_bounds(request, tokens).grammar_start
    if start > len(tokens):
        return None
    request.structured_output_request.reasoning_ended = True
    return start


# -- outputs to clients ----------------------------------------------------------------------------


def add_tokens(outputs: Any, request: Any, tokens: list[int]) -> None:
    """Adds an output with tokens that were not sampled."""
    output = EngineCoreOutput(
        request_id=request.request_id, new_token_ids=tokens, new_logprobs=_certain(request, tokens)
    )
    _add_output(outputs, request, output)


def add_end(outputs: Any, request: Any, why: str | None) -> None:
    """Adds the last output of a request that has ended between two steps."""
    reason = request.get_finished_reason()
    output = EngineCoreOutput(
        request_id=request.request_id,
        new_token_ids=[],
        finish_reason=FinishReason.ERROR if reason is None else reason,  # FinishReason.STOP is 0
        stop_reason=why,
    )
    _add_output(outputs, request, output)


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
                output.stop_reason = why = reasons.pop(output.request_id)
                carry_error(output, why, of_runtime=why.startswith(OF_RUNTIME))


def add_events(outputs: Any, reporting: dict[str, tuple[Any, Events]]) -> None:
    """Adds events to the requests' newest outputs, and forgets requests that have ended."""
    last = {output.request_id: output for group in outputs.values() for output in group.outputs}
    for request_id, (request, events) in list(reporting.items()):
        if new := events.take_events():
            output = last.get(request_id)
            if output is None and not request.is_finished():
                output = EngineCoreOutput(request_id=request_id, new_token_ids=[])
                # before the outputs of children that begin in this step: this output has the fork event
                _add_output(outputs, request, output, at=0)
            if output is not None:
                output.kv_transfer_params = {**(output.kv_transfer_params or {}), KEY: new}
        if request.is_finished():
            del reporting[request_id]


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


def _add_output(outputs: Any, request: Any, output: EngineCoreOutput, at: int | None = None) -> None:
    client = request.client_index
    if client not in outputs:
        outputs[client] = EngineCoreOutputs(outputs=[])
    others = outputs[client].outputs
    others.insert(len(others) if at is None else at, output)


class KeptBlocks:
    """The waiting requests of one scheduler that hold blocks.

    A suspended request gives its blocks back when its time is over. All of them do earlier, the least
    recently suspended first, as soon as another request finds too few blocks, so that none can starve. vLLM
    finds blocks that were given back by their hashes, unless others have taken them.
    """

    def __init__(self, scheduler: Any) -> None:
        """`scheduler`: not used before its constructor has finished."""
        self._scheduler = scheduler
        #: by request id: when the blocks must be given back, by `time.monotonic`
        self._until: dict[str, float] = {}
        self._watching = False

    def keep_for(self, request: Any, seconds: float) -> None:
        """Lets a request that has just been suspended keep its blocks for this time."""
        self.watch()
        self._until.pop(request.request_id, None)  # it becomes the last one
        self._until[request.request_id] = time.monotonic() + seconds

    def forget(self, request_id: str) -> None:
        """Forgets a request that runs again, or has ended."""
        self._until.pop(request_id, None)

    def release_expired(self) -> None:
        """Gives back the blocks of requests whose time is over. Call it between two steps."""
        now = time.monotonic()
        for request_id in [request_id for request_id, until in self._until.items() if until <= now]:
            self._release(self._scheduler.requests[request_id])

    def watch(self) -> None:
        """From now on, a request that finds too few blocks takes those of waiting requests."""
        if self._watching:
            return
        self._watching = True
        manager = self._scheduler.kv_cache_manager
        allocate = manager.allocate_slots

        @functools.wraps(allocate)
        def allocate_or_take(request: Any, *args: Any, **keywords: Any) -> Any:
            blocks = allocate(request, *args, **keywords)
            holders = self._holders(request)
            while blocks is None and (holder := next(holders, None)) is not None:
                self._release(holder)
                blocks = allocate(request, *args, **keywords)
            return blocks

        manager.allocate_slots = allocate_or_take

    def _holders(self, request: Any) -> Iterator[Any]:
        """Yields those that give way to `request`: suspended ones that this step does not run, moved ones."""
        for other in [self._scheduler.requests[request_id] for request_id in self._until]:
            if other is not request and other.status != RequestStatus.RUNNING:
                yield other
        for other in list(self._scheduler.kv_holding_waiting):
            if other is not request and other.status == RequestStatus.WAITING and other.num_computed_tokens:
                yield other

    def _release(self, request: Any) -> None:
        """Frees the blocks of a waiting request. vLLM's queues stay: it may be going through them."""
        self._until.pop(request.request_id, None)
        self._scheduler._free_request_blocks(request)
        self._scheduler.encoder_cache_manager.free(request)
        request.num_computed_tokens = 0
