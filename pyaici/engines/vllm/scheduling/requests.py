"""The controlled requests of a scheduler: starts them, applies controllers' answers, and ends them."""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from vllm.v1.request import RequestStatus

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, ArgumentError, ResultError
from pyaici.client.results import MidResult
from pyaici.client.runtime import Runtime
from pyaici.engines import WORK_FACTOR
from pyaici.engines.vllm.frontend import (
    ControllerCall,
    Events,
    drafts_refusal,
    error_to_wire,
    failure_reason,
    request_refusal,
    rows_refusal,
)
from pyaici.engines.vllm.scheduling.controlled import DISCARDED, Controlled, Ending, Held, Outcome
from pyaici.engines.vllm.scheduling.driver import ControllerDriver
from pyaici.engines.vllm.scheduling.groups import UNUSED, Groups
from pyaici.engines.vllm.scheduling.request_state import (
    ControllerGrammar,
    KeptBlocks,
    add_end,
    add_events,
    add_tokens,
    begin_thinking,
    discards,
    failed,
    give_reasons,
    hold,
    keep_back,
    move,
    send_output,
    suspend,
    then,
    thinks,
    tokens_of_thinking,
    uses_nothing,
)
from pyaici.engines.vllm.workers import LOGPROBS, MASS, ROWS, Logprobs, WorkerRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("vllm.aici")


#: status and stop reason of requests with these endings; `give_reasons` adds the reason of an error
END = {
    Ending.STOP: (RequestStatus.FINISHED_STOPPED, "controller"),
    Ending.ERROR: (RequestStatus.FINISHED_ERROR, None),
}


#: the error of a request whose biases or temperature the workers have not applied
_NOT_APPLIED = (
    "the controller uses biases or a temperature, which this engine's model runner does not support: "
    "use another controller, or a model runner of vLLM for CUDA, ROCm or CPUs"
)


class ControlledRequests:
    """The controlled requests of one scheduler."""

    def __init__(self, scheduler: Any, make_driver: Callable[..., ControllerDriver]) -> None:
        """`scheduler`: not used before its constructor has finished."""
        self._scheduler, self._make_driver = scheduler, make_driver
        self._socket = os.environ.get("AICI_SOCKET")
        #: makes the runtime for the first request with a controller; a recording program replaces it
        self.make_runtime: Callable[..., Runtime] = Runtime
        #: created for the first request with a controller
        self.driver: ControllerDriver | None = None
        #: (request, controlled, outcome, kept tokens) of the current step, until `end_step`
        self._outcomes: list[tuple[Any, Controlled, Outcome, list[int]]] = []
        #: output that is held back, by request id
        self._held: dict[str, Held] = {}
        #: requests whose clients asked for events, by request id
        self._reporting: dict[str, tuple[Any, Events]] = {}
        #: reasons of failed requests for which vLLM has sent no output yet, by request id
        self._failed: dict[str, str] = {}
        #: requests that skip steps, by request id
        self.suspended: dict[str, Controlled] = {}
        self._kept = KeptBlocks(scheduler)
        #: results of the current pass; see `rows`
        self._masses: dict[str, NDArray[np.float32]] = {}
        self._logprobs: dict[str, Logprobs] = {}
        self.groups = Groups(scheduler)
        #: requests are added and ended between two steps, in the same thread, or followed by `end_sleep`
        self.can_be_woken = False

    def end_sleep(self) -> None:
        """Ends the sleep of a scheduler whose requests all wait, or its next one. For any thread."""
        if (driver := self.driver) is not None:
            driver.end_sleep()

    def _has_only_suspended(self) -> bool:
        """Returns whether no request is running, or waits for anything but its controller."""
        scheduler = self._scheduler
        queued = (*scheduler.waiting, *scheduler.deferred_waiting)
        return not scheduler.running and all(one.request_id in self.suspended for one in queued)

    @property
    def idle(self) -> bool:
        """Whether no request has had a controller, and none has been refused one."""
        return self.driver is None and not self._failed

    # -- beginning ------------------------------------------------------------------------------

    def refuse(self, request: Any, error: Exception) -> None:
        """Makes a request fail with this reason once vLLM schedules it."""
        log.warning("request %s is refused: %s", request.request_id, error)
        extra = getattr(request.sampling_params, "extra_args", None) or {}
        self._failed[request.request_id] = failure_reason(str(extra.get("aici_controller", "")), error)
        hold(request, failed(error))

    def add(self, request: Any) -> None:
        """Gives a request with a controller a grammar that vLLM waits for while the controller is prepared.

        Raises AiciError or ValueError for invalid parameters.
        """
        parameters = request.sampling_params
        call = ControllerCall.from_extra_args(parameters.extra_args)
        if call is None:
            return
        if request.structured_output_request is not None:
            raise ArgumentError(
                "a request has a controller or structured_outputs, not both: leave one of them out"
            )
        refusal = request_refusal(parameters, fork=call.fork)
        if refusal is not None:
            raise ArgumentError(refusal)
        if request.resumable:
            raise ArgumentError("a request with a controller cannot have streaming input")
        if call.hold and parameters.num_logprobs is not None:
            raise ArgumentError("aici_hold and logprobs exclude each other: leave one of them out")
        if call.fork and parameters.top_k == 1:
            # greedy: vLLM refuses temperature 0 for several choices. A temperature of the controller applies
            # without this top_k. A copy, because vLLM's front end may share the object
            request.sampling_params = parameters = copy.copy(parameters)
            parameters.temperature, parameters.top_k = 0.0, 0
            vars(parameters).pop("sampling_type", None)  # a cached property
        if (refusal := drafts_refusal(self._scheduler.vllm_config, parameters)) is not None:
            raise ArgumentError(refusal)
        if call.fork and not self.groups.join(request):
            return
        controlled = self._conductor().add(request.request_id, call, parameters.all_stop_token_ids)
        controlled.held = Held() if call.hold else None
        controlled.events = Events() if call.events else None
        self._attend(controlled, request)
        hold(request, then(controlled.prepared, lambda _: ControllerGrammar(controlled)))
        if call.after_thinking:
            begin_thinking(self._scheduler.structured_output_manager, request, call.template)
            controlled.thinking = True

    def begin_step(self) -> None:
        """Prepares vLLM's queues for scheduling a step."""
        self._kept.release_expired()

    def start_controllers(self, output: Any) -> None:
        """Starts the controllers of requests that are scheduled for the first time."""
        driver, started = self.driver, False
        assert driver is not None
        if output.total_num_scheduled_tokens == 0:
            driver.give_way(long=self.can_be_woken and self._has_only_suspended())
        for new in output.scheduled_new_reqs:
            controlled = driver.requests.get(new.req_id)
            if controlled is None:
                continue
            request = self._scheduler.requests[new.req_id]
            send_output(new, request)
            self._kept.forget(new.req_id)
            controlled.report_read_again(new.num_computed_tokens)
            if controlled.thinking and not request.num_output_tokens:
                controlled.thinking = thinks(self._scheduler.structured_output_manager, request)
            if controlled.control is None and controlled.error is None and not controlled.thinking:
                self._start_controller(driver, request, controlled)
                started = True
        if started:
            driver.post()
        if self._scheduler.num_spec_tokens:
            for request_id, controlled in driver.requests.items():
                if not controlled.follows:  # otherwise vLLM would schedule drafts that are not known yet
                    self._scheduler.requests[request_id].spec_token_ids = []

    @staticmethod
    def _start_controller(driver: ControllerDriver, request: Any, controlled: Controlled) -> None:
        """Starts the controller of a request, which then waits for it."""
        if not controlled.prepared.done():  # it is being placed again
            controlled.answer = MidResult(Verb.LATE)
            return
        driver.start_controller(controlled, request._all_token_ids, request.sampling_params.seed)
        controlled.prompt_length = request.num_prompt_tokens  # forks also get the thinking

    def follow_drafts(self, output: Any) -> None:
        """Asks the controllers about the drafts of a pass. Those not allowed or not followed become padding.

        vLLM itself does the same with drafts that a grammar forbids. `output`: a SchedulerOutput.
        """
        scheduled: dict[str, list[int]] = output.scheduled_spec_decode_tokens
        if not scheduled or self.driver is None:
            return
        drafts = {
            request_id: list(itertools.takewhile(lambda token: token >= 0, tokens))  # not vLLM's padding
            for request_id, tokens in scheduled.items()
            if (controlled := self.driver.requests.get(request_id)) is not None
            and not controlled.thinking
            and (request := self._scheduler.requests.get(request_id)) is not None
            and not request.is_prefill_chunk
        }
        self.driver.guess(drafts)
        invalid = output.num_invalid_spec_tokens = output.num_invalid_spec_tokens or {}
        for request_id in drafts:
            tokens, known = scheduled[request_id], len(self.driver.requests[request_id].guesses)
            if known < len(tokens):
                scheduled[request_id] = [*tokens[:known], *[-1] * (len(tokens) - known)]
                invalid[request_id] = len(tokens) - known

    def send_rows(self, scheduler_output: Any, grammar_output: Any) -> None:
        """Sends workers what the masks of a pass do not express; see `rows`."""
        assert self.driver is not None
        sent: dict[str, list[WorkerRow]] = {}
        for request_id in grammar_output.structured_output_request_ids:
            controlled = self.driver.requests.get(request_id)
            if controlled is None:
                continue
            request = self._scheduler.requests[request_id]
            rows = DISCARDED if discards(request) else controlled.rows(request.sampling_params)
            if not rows:
                continue
            if self._rows_refusal is None:
                sent[request_id] = rows
            elif any(row.changes for row in rows):
                controlled.fail(ArgumentError(self._rows_refusal))
        if sent:
            setattr(grammar_output, ROWS, sent)
            # workers may have their own copy of `scheduler_output`; here it recalls what they must confirm
            setattr(scheduler_output, ROWS, sent)

    def receive_masses(self, scheduler_output: Any, model_runner_output: Any) -> None:
        """Receives the workers' results for the rows of a pass.

        Fails requests whose biases or temperatures were not applied.
        """
        assert self.driver is not None
        sent: dict[str, list[WorkerRow]] = getattr(scheduler_output, ROWS)
        masses = getattr(model_runner_output, MASS, None)
        self._masses = masses or {}
        self._logprobs = getattr(model_runner_output, LOGPROBS, {})
        for request_id, rows in sent.items():
            controlled = self.driver.requests.get(request_id)
            if masses is None and controlled is not None and any(row.changes for row in rows):
                controlled.fail(ArgumentError(_NOT_APPLIED))

    def collect_answers(self, scheduled: Iterable[str] = ()) -> None:
        """Waits for the controllers' answers, and gives requests to the children of forks.

        `scheduled`: the requests of the pass. Those without controllers do not wait for a worker that hangs.
        """
        driver = self.driver
        assert driver is not None

        def begun(child: Controlled, request: Any) -> None:
            driver.requests[request.request_id] = child
            self._attend(child, request)

        def fail(request_ids: set[str], error: AiciError) -> None:
            for request_id in request_ids:
                driver.requests[request_id].fail(error)

        driver.collect_answers(ready=any(name not in driver.requests for name in scheduled))
        forked, driver.forked = driver.forked, []
        for parent, child in forked:
            self.groups.expect(parent, child)
        self.groups.place_children(begun, fail)

    def _attend(self, controlled: Controlled, request: Any) -> None:
        """Registers a request whose output is held back or whose client asked for events."""
        if controlled.held is not None:
            self._held[request.request_id] = controlled.held
        if controlled.events is not None:
            self._reporting[request.request_id] = (request, controlled.events)

    @functools.cached_property
    def _rows_refusal(self) -> str | None:
        """Why workers of this engine cannot apply rows; None if they can."""
        return rows_refusal(self._scheduler.vllm_config)

    def _conductor(self) -> ControllerDriver:
        if self.driver is None:
            rows = self._rows_refusal is None
            self.driver = self._make_driver(self._scheduler, self._socket, self.make_runtime, rows=rows)
        return self.driver

    # -- the end of a step ----------------------------------------------------------------------

    def settle_tokens(self, request: Any, controlled: Controlled, tokens: list[int]) -> Outcome:
        """Decides what becomes of the tokens of a pass."""
        assert self.driver is not None
        if not controlled.thinking:
            controlled.masses = self._masses.get(controlled.request_id)
            controlled.logprobs = self._logprobs.get(controlled.request_id)
            return self.driver.settle_pass(controlled, tokens)
        end = tokens_of_thinking(self._scheduler.structured_output_manager, request, tokens)
        keep = len(tokens) if end is None else end
        controlled.thinking = end is None
        # tokens after the thinking are sampled again, under the controller's mask
        outcome = Outcome(keep, forced=[False] * keep, holds=[False] * keep)
        outcome.begins, outcome.moves = end is not None, keep < len(tokens)
        return outcome

    def note(
        self, request: Any, controlled: Controlled, outcome: Outcome, tokens: list[int], stopped: bool
    ) -> None:
        """Records the tokens that vLLM has appended. `stopped`: the last of them has ended the request.

        `end_step` carries out the rest of the outcome.
        """
        controlled.report_tokens(outcome, tokens)
        # a client with events also gets the output for the last token, see `ControllerDriver.finish_request`
        shown = len(tokens) if stopped and controlled.events is not None else len(tokens) - 1
        for behind, text in outcome.logs:
            if behind <= shown or not stopped:
                controlled.print(text)
        self._outcomes.append((request, controlled, outcome, tokens))

    def end_step(self, nothing_ran: bool, outputs: Any) -> None:
        """Carries out the controllers' answers, posts reports to them, and completes the clients' outputs."""
        outcomes, self._outcomes = self._outcomes, []
        self._masses, self._logprobs = {}, {}
        if self.driver is not None:
            for request, controlled, outcome, tokens in outcomes:
                if not request.is_finished():
                    try:
                        self._follow(self.driver, request, controlled, outcome, tokens, outputs)
                    except Exception as error:
                        log.exception("request %s has failed", request.request_id)
                        self._end_request(request, RequestStatus.FINISHED_ERROR, repr(error), outputs)
            self._ask_suspended(self.driver, outputs)
            self._ask_late(self.driver)
            self.driver.post()
            if self.suspended and nothing_ran:
                self.collect_answers()  # there is no pass that the controllers could work beside
        self.groups.add_begun(
            outputs,
            lambda spare: self._end_request(spare, RequestStatus.FINISHED_STOPPED, UNUSED, outputs),
            self._drop_child,
        )
        if self._held:
            keep_back(outputs, self._held)
        if self._failed:
            give_reasons(outputs, self._failed)
        if self._reporting:
            add_events(outputs, self._reporting)

    def _follow(
        self,
        driver: ControllerDriver,
        request: Any,
        controlled: Controlled,
        outcome: Outcome,
        tokens: list[int],
        outputs: Any,
    ) -> None:
        """Carries out an outcome beyond the sampled tokens, and sets the controller's next report."""
        news = tokens[outcome.reported :]
        if outcome.begins:
            if outcome.moves:
                move(self._scheduler, request, 0, ())
            self._start_controller(driver, request, controlled)
            return
        if outcome.ending:  # needs an output of its own, see `keep_back`
            self._end_request(request, *END[outcome.ending], outputs)
            return
        if outcome.suspend:
            self._suspend(request, controlled)
            if controlled.events is not None and not outcome.late:
                controlled.events.add("suspended")
        if not outcome.moves:
            driver.report(controlled, news, 0, sampled=len(news) == 1 and not outcome.forced[-1])
            return
        if outcome.backtrack and controlled.held is not None and tokens:  # tokens once sent cannot be removed
            keep_back(outputs, {request.request_id: controlled.held})
        room = min(
            request.max_tokens - request.num_output_tokens + outcome.backtrack,
            self._scheduler.max_model_len - request.num_tokens + outcome.backtrack,
        )
        append = list(outcome.append[:room])
        if outcome.backtrack:
            refusal = controlled.take_back(outcome.backtrack, len(request._all_token_ids))
            if refusal is not None:
                controlled.fail(ResultError(refusal))
                self._end_request(request, RequestStatus.FINISHED_ERROR, None, outputs)
                return
            if controlled.taken_back > WORK_FACTOR * request.sampling_params.max_tokens:
                self._end_request(request, RequestStatus.FINISHED_LENGTH_CAPPED, "work", outputs)
                return
        if not append and outcome.backtrack == len(request._all_token_ids):
            assert controlled.session is not None
            append = [controlled.session.begin_token]
        self._kept.watch()
        move(self._scheduler, request, outcome.backtrack, append)
        sampled = len(news) == 1 and not append and not outcome.backtrack and not outcome.forced[-1]
        driver.report(controlled, news + append, outcome.backtrack, sampled=sampled)
        if append:
            add_tokens(outputs, request, append)
            if controlled.events is not None:
                controlled.events.tokens("forced", append)
        whole = append and len(append) == len(outcome.append)
        held = whole and outcome.hold_append and controlled.goes_on(append[-1])
        if whole and append[-1] in controlled.stops and not held:
            self._end_request(request, RequestStatus.FINISHED_STOPPED, None, outputs)
        elif len(append) == room:
            self._end_request(request, RequestStatus.FINISHED_LENGTH_CAPPED, None, outputs)

    def _suspend(self, request: Any, controlled: Controlled) -> None:
        """Has a request skip steps from now on."""
        controlled.computed = min(request.num_computed_tokens, request.num_tokens - 1)
        if suspend(self._scheduler, request, keep=controlled.call.keep > 0):
            self._kept.keep_for(request, controlled.call.keep)
        self.suspended[request.request_id] = controlled

    def _ask_suspended(self, driver: ControllerDriver, outputs: Any) -> None:
        """Asks the controllers of suspended requests again in each step, and applies their answers.

        Those that wait for something are asked when they have been woken.
        """
        driver.collect_wakes(self.suspended.values())
        for controlled in list(self.suspended.values()):
            request = self._scheduler.requests[controlled.request_id]
            if controlled.control is None:  # it is being placed again
                if controlled.failure is not None:
                    self._end_request(request, RequestStatus.FINISHED_ERROR, None, outputs)
                elif controlled.prepared.done():
                    del self.suspended[controlled.request_id]
                continue
            answer = controlled.answer
            if answer is None:
                continue
            if answer.waits:
                continue
            if answer.verb in (Verb.SUSPEND, Verb.LATE):
                controlled.answer = None
                driver.report(controlled, [], 0, sampled=False)
            elif answer.verb == Verb.STOP:
                self._end_request(request, RequestStatus.FINISHED_STOPPED, "controller", outputs)
            elif answer.verb == Verb.ERROR:
                self._end_request(request, RequestStatus.FINISHED_ERROR, None, outputs)
            else:
                del self.suspended[controlled.request_id]

    def _ask_late(self, driver: ControllerDriver) -> None:
        """Asks late controllers again whose requests have no pass that uses the answer up.

        A client must ask in each step until it has the answer.
        """
        for request_id, controlled in driver.requests.items():
            answer = controlled.answer
            if answer is None or answer.verb != Verb.LATE or controlled.control is None:
                continue
            idle = controlled.report is None and not controlled.copying
            if idle and uses_nothing(self._scheduler.requests[request_id]):
                controlled.answer = None
                driver.report(controlled, [], 0, sampled=False)

    # -- ending ---------------------------------------------------------------------------------

    def _end_request(self, request: Any, status: Any, why: str | None, outputs: Any) -> None:
        """Ends a request between two steps."""
        request.stop_reason = why
        self._scheduler.finish_requests(request.request_id, status)
        add_end(outputs, request, why)

    def free_request(self, request: Any) -> None:
        """Frees the controller of an ended request, if it has one."""
        if self.driver is not None and request.request_id in self.driver.requests:
            self._free(self.driver, request)
        self.groups.leave_group(request)

    def _free(self, driver: ControllerDriver, request: Any) -> None:
        last: list[int] = []
        sampled = False
        for other, _, outcome, tokens in self._outcomes:
            if other is request:  # vLLM has ended the request during the step
                last = tokens[outcome.reported :]
                sampled = len(last) == 1 and not outcome.forced[-1]
        self.suspended.pop(request.request_id, None)
        self._kept.forget(request.request_id)
        ended = driver.finish_request(request.request_id, last, sampled=sampled)
        if request.status == RequestStatus.FINISHED_ABORTED:
            self._held.pop(request.request_id, None)
            self._reporting.pop(request.request_id, None)
        elif ended is not None and ended.failure is not None:
            why = failure_reason(ended.call.controller, ended.failure)
            log.warning("request %s: %s", request.request_id, why)
            self._failed[request.request_id] = why
            if ended.events is not None:
                ended.events.add("error", error_to_wire(ended.failure))

    def _drop_child(self, child: Controlled) -> None:
        if self.driver is not None:
            self.driver.drop(child)

    def close(self) -> None:
        """Ends all controllers."""
        driver, self.driver = self.driver, None
        if driver is not None:
            driver.close()
