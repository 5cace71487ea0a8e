"""A mixin that adds controllers to vLLM's scheduler classes.

In a step, `schedule` starts the controllers of new requests, and the model runs. `get_grammar_bitmask` waits
for the controllers, which have worked in the meantime, and passes their masks on. `update_from_output`
applies their answers to the tokens and posts the next reports. The mixin raises no errors of its own, because
they would end vLLM's engine.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from aicirt.contract.abi import LOOK_NEVER
from aicirt.contract.errors import ResultError
from pyaici.client.runtime import rows_for
from pyaici.engines.connection import Connection
from pyaici.engines.vllm.scheduling.controlled import Ending, Outcome
from pyaici.engines.vllm.scheduling.driver import (
    CAPABILITIES,
    MAX_DRAFT_COPIES,
    ControllerDriver,
    engine_vocabulary,
)
from pyaici.engines.vllm.scheduling.request_state import suspended, unending
from pyaici.engines.vllm.scheduling.requests import END, ControlledRequests
from pyaici.engines.vllm.workers import ROWS

if TYPE_CHECKING:
    from pyaici.client.runtime import Runtime

log = logging.getLogger("vllm.aici")


class SchedulerMixin:
    """A mixin to put before a scheduler class of vLLM: ``class Mine(SchedulerMixin, AsyncScheduler)``."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self._aici = ControlledRequests(self, make_driver)
        super().__init__(*args, **keywords)
        _before(self.structured_output_manager, "clear_backend", self._aici_close)  # type: ignore[attr-defined]

    def add_request(self, request: Any) -> None:
        known = request.request_id in self.requests  # type: ignore[attr-defined]
        if not known and request.sampling_params is not None:
            try:
                self._aici.add(request)
            except Exception as error:
                self._aici.refuse(request, error)
        super().add_request(request)  # type: ignore[misc]
        self._aici.groups.set_aside()

    def schedule(self, *args: Any, **keywords: Any) -> Any:
        driver = self._aici.driver
        if driver is None:
            return super().schedule(*args, **keywords)  # type: ignore[misc]
        if self._aici.suspended:
            try:
                self._aici.begin_step()
            except Exception:
                log.exception("freeing the blocks of suspended requests has failed")
        with suspended([self.requests[name] for name in self._aici.suspended]):  # type: ignore[attr-defined]
            output = super().schedule(*args, **keywords)  # type: ignore[misc]
        if driver.requests:
            try:
                self._aici.start_controllers(output)
            except Exception:
                log.exception("starting controllers has failed")
        return output

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        if self._aici.driver is not None and self._aici.driver.requests:
            if scheduler_output.has_structured_output_requests or self._aici.suspended:
                try:
                    self._aici.collect_answers(scheduler_output.num_scheduled_tokens)
                    self._aici.follow_drafts(scheduler_output)
                except Exception:
                    log.exception("reading the controllers' results has failed")
        output = super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]
        if output is not None and self._aici.driver is not None and self._aici.driver.requests:
            try:
                self._aici.send_rows(scheduler_output, output)
            except Exception:
                log.exception("passing the controllers' rows on has failed")
        return output

    def _update_request_with_output(
        self, request: Any, new_token_ids: list[int], *args: Any, **keywords: Any
    ) -> tuple[list[int], bool]:
        driver = self._aici.driver
        controlled = None if driver is None else driver.requests.get(request.request_id)
        if controlled is None:
            result: tuple[list[int], bool] = super()._update_request_with_output(  # type: ignore[misc]
                request, new_token_ids, *args, **keywords
            )
            return result
        try:
            outcome = self._aici.settle_tokens(request, controlled, new_token_ids)
            pieces = controlled.pieces(outcome, new_token_ids[: outcome.keep])
        except Exception as error:
            log.exception("request %s has failed", request.request_id)
            controlled.fail(ResultError(repr(error)))
            outcome, pieces = Outcome(keep=0, ending=Ending.ERROR), []
        if outcome.ending and not outcome.keep:
            request.status, request.stop_reason = END[outcome.ending]
            return [], True
        tokens, stopped = self._aici_append(request, pieces, *args, **keywords)
        self._aici.note(request, controlled, outcome, list(tokens), stopped)
        return tokens, stopped

    def _aici_append(
        self, request: Any, pieces: list[tuple[list[int], bool]], *args: Any, **keywords: Any
    ) -> tuple[list[int], bool]:
        """Appends tokens through vLLM. Returns the appended tokens, and whether they ended the request.

        `pieces`: see `Controlled.pieces`.
        """
        added: list[int] = []
        for tokens, held in pieces:
            with unending(request) if held else nullcontext():
                some, stopped = super()._update_request_with_output(request, tokens, *args, **keywords)  # type: ignore[misc]
            added += some
            if stopped:
                return added, True
        return added, False

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        if hasattr(scheduler_output, ROWS):
            try:
                self._aici.receive_masses(scheduler_output, model_runner_output)
            except Exception:
                log.exception("reading the workers' results has failed")
        outputs = super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        if self._aici.idle:
            return outputs
        try:
            self._aici.end_step(scheduler_output.total_num_scheduled_tokens == 0, outputs)
        except Exception:
            log.exception("reporting tokens to controllers has failed")
        return outputs

    def _free_request(self, request: Any, *args: Any, **keywords: Any) -> Any:
        try:
            self._aici.free_request(request)
        except Exception:
            log.exception("freeing the controller of request %s has failed", request.request_id)
        return super()._free_request(request, *args, **keywords)  # type: ignore[misc]

    def shutdown(self) -> None:
        self._aici_close()
        super().shutdown()  # type: ignore[misc]

    def _aici_close(self) -> None:
        try:
            self._aici.close()
        except Exception:
            log.exception("ending the controllers has failed")


def _before(owner: Any, name: str, what: Callable[[], None]) -> None:
    """Makes a method of an object call `what` first.

    The scheduler's own `shutdown` runs after that of the workers, and an engine with little time is killed
    before that.
    """
    method = getattr(owner, name, None)
    if method is not None:

        def both(*args: Any, **keywords: Any) -> Any:
            what()
            return method(*args, **keywords)

        setattr(owner, name, both)


# -- the first request with a controller --------------------------------------------------------------


def make_driver(
    scheduler: Any, socket: str | None, make_runtime: Callable[..., Runtime], *, rows: bool
) -> ControllerDriver:
    """Returns the driver of a scheduler's controllers. `rows`: workers can apply biases and temperatures."""
    let_processes_sleep()
    config, manager = scheduler.vllm_config, scheduler.structured_output_manager
    running = config.scheduler_config.max_num_seqs
    if manager._grammar_bitmask is None:
        # every backend of vLLM allocates this at its first request
        masks = running * (1 + config.num_speculative_tokens)
        words = (config.model_config.get_vocab_size() + 31) // 32
        manager._grammar_bitmask = torch.full((masks, words), -1, dtype=torch.int32)
    copies = min(running * config.num_speculative_tokens, MAX_DRAFT_COPIES)
    connection = Connection(
        functools.partial(engine_vocabulary, config),
        socket=socket,
        num_rows=rows_for(running + copies),
        make_runtime=make_runtime,
    )
    capabilities = (
        CAPABILITIES if rows else replace(CAPABILITIES, logprobs=False, top_logprobs=0, look=LOOK_NEVER)
    )
    return ControllerDriver(connection, most_copies=copies, capabilities=capabilities)


def let_processes_sleep() -> None:
    """Has vLLM's engine processes wake a scheduler that sleeps when a message comes to them. Idempotent.

    Not those of ranks that run each step together, which must not sleep.
    """
    from vllm.v1.engine.core import DPEngineCoreProc, EngineCoreProc

    process = EngineCoreProc._process_input_queue
    if hasattr(process, "__wrapped__"):
        return

    @functools.wraps(process)
    def process_input_queue(core: Any) -> None:
        requests = getattr(core.scheduler, "_aici", None)
        if requests is not None and not requests.can_be_woken and not isinstance(core, DPEngineCoreProc):
            put = core.input_queue.put

            def put_and_wake(*args: Any, **keywords: Any) -> None:
                put(*args, **keywords)
                requests.end_sleep()

            core.input_queue.put = put_and_wake  # `put_nowait` calls it, too
            requests.can_be_woken = True
        process(core)

    EngineCoreProc._process_input_queue = process_input_queue
