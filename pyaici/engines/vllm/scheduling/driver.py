"""Drives the controllers of an engine's requests: posts reports, waits for answers, and follows drafts."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aicirt.contract.abi import LOOK_LISTS, Verb
from aicirt.contract.errors import (
    AiciError,
    RuntimeFailure,
    TemplateGoneError,
    VocabularyError,
    WorkerDiedError,
)
from aicirt.contract.messages import StepInput
from pyaici.client.arguments import Capabilities
from pyaici.client.results import Look, MidResult
from pyaici.engines.connection import tokenizer_vocabulary
from pyaici.engines.vllm.scheduling.controlled import PAUSE, Controlled, Guess, Outcome, allows

if TYPE_CHECKING:
    from pyaici.client.runtime import Runtime
    from pyaici.client.step import Step
    from pyaici.engines.connection import Connection, Prepared, VocabularyRuntime
    from pyaici.engines.vllm.frontend import ControllerCall
    from pyaici.tokens import Vocabulary


log = logging.getLogger("vllm.aici")

#: capabilities that every request has; a request may allow more
CAPABILITIES = Capabilities(
    fork=False,
    backtrack=False,
    ff_tokens=True,
    suspend=True,
    logprobs=True,
    dense=True,
    look=LOOK_LISTS,
    follow=False,
    drafts=0,
)


#: the longest that a step waits for the copies of controllers, which usually takes less than a millisecond
_COPY_SECONDS = 0.003
#: seconds after which an engine without other work checks for new requests again
_WAY_SECONDS = 0.002
#: the longest sleep while all requests wait, if whatever ends the wait also wakes the engine
_SLEEP_SECONDS = 1.0


class ControllerDriver:
    """All controlled requests of one scheduler. Errors of controllers and of the runtime are never raised.

    The class does not depend on vLLM: the scheduler mixin calls it.
    """

    def __init__(
        self, connection: Connection, *, most_copies: int = 0, capabilities: Capabilities = CAPABILITIES
    ) -> None:
        """`most_copies`: most copies of controllers for the drafts of a pass.

        `capabilities`: those of every request; a request may allow more.
        """
        self._connection = connection
        self._capabilities = capabilities
        self._drafts = Drafts(most_copies)
        self.requests: dict[str, Controlled] = {}
        #: requests that have started, by their controller's number at the runtime
        self._by_control: dict[int, Controlled] = {}
        #: steps that are posted and whose answers are not yet read
        self._steps: list[tuple[VocabularyRuntime, Step]] = []
        #: (parent, child) of forks whose children have no request yet
        self.forked: list[tuple[Controlled, Controlled]] = []
        #: controllers that wait no longer, and have not been asked again
        self._woken: set[int] = set()
        #: requests whose first step waits for copies of the controller
        self._copying: list[Controlled] = []

    def add(self, request_id: str, call: ControllerCall, stops: Iterable[int]) -> Controlled:
        """Adds a request and begins to prepare its controller."""
        capabilities = replace(self._capabilities, backtrack=call.backtrack, fork=call.fork)
        prepared = self._connection.prepare(call, capabilities)
        controlled = Controlled(request_id, call, prepared, frozenset(stops))
        self.requests[request_id] = controlled
        return controlled

    def give_way(self, *, long: bool) -> None:
        """Waits briefly while controllers are prepared, or wait themselves, to leave the processor to others.

        For an engine that has nothing to run. `long`: it has no other requests, and new ones call
        `end_sleep`, so that it can sleep until a controller is woken.
        """
        preparing = [one.prepared for one in self.requests.values() if not one.prepared.done()]
        if preparing:
            wait(preparing, timeout=_WAY_SECONDS, return_when=FIRST_COMPLETED)
            return
        waiting = [one for one in self.requests.values() if one.answer is not None and one.answer.waits]
        if waiting and len(waiting) == len(self.requests) and (session := waiting[0].session) is not None:
            alone = all(one.session is session for one in waiting)
            session.runtime.sleep(_SLEEP_SECONDS if long and alone else _WAY_SECONDS)

    def end_sleep(self) -> None:
        """Ends the sleep in `give_way`. May be called from any thread."""
        self._connection.ring()

    def collect_wakes(self, suspended: Iterable[Controlled]) -> None:
        """Notes which of these requests wait no longer, so that they can be asked again."""
        waiting = [one for one in suspended if one.answer is not None and one.answer.waits]
        for session in {one.session for one in waiting if one.session is not None and not one.session.lost}:
            self._woken.update(session.runtime.woken(), session.runtime.lost())
        for one in waiting:
            if one.control in self._woken:
                self._woken.discard(one.control)
                one.answer = MidResult(Verb.SUSPEND)

    def start_controller(self, controlled: Controlled, prompt: Sequence[int], seed: int | None) -> None:
        """Starts a request whose controller is prepared; `post` then asks for the first token.

        Does not wait for the worker. An error of the start comes as the first answer, and if the controller
        has to be placed again, its request has no `control` until it has been started again.
        """
        prepared = controlled.prepared.result()
        controlled.session = prepared.session
        try:
            if prepared.session.lost:
                raise RuntimeFailure("the runtime has ended")
            control = prepared.session.runtime.instantiate(
                prepared.controller,
                controlled.call.arg,
                prompt,
                capabilities=prepared.capabilities,
                seed=seed,
                wait=False,
                within=0.0,
                owner=controlled.call.owner,
                placement=prepared.placement,
                calls=prepared.calls,
            )
        except AiciError as error:
            self._fail_start(controlled, error)
            return
        controlled.control = control
        controlled.repeatable = prepared.session.runtime.is_repeatable(control)
        controlled.has_post = prepared.session.runtime.wants_logprobs(control)
        controlled.prompt_length = len(prompt)
        self._by_control[control] = controlled
        if controlled.call.copies == 1:
            controlled.report = StepInput(control)
            return
        try:
            for _ in range(controlled.call.copies - 1):
                controlled.copying.append(prepared.session.runtime.begin_clone(control))
        except AiciError as error:
            controlled.fail(error)
            return
        self._copying.append(controlled)

    def _fail_start(self, controlled: Controlled, error: AiciError) -> None:
        """Fails a request, or has its controller placed once more if it cannot start where it was placed."""
        gone = isinstance(error, TemplateGoneError)
        # before its first answer it may have made calls, which must not be made twice
        died = isinstance(error, WorkerDiedError) and not controlled.call.calls
        if controlled.begun or controlled.moved or not (gone or died):
            controlled.fail(error)
            return
        if controlled.control is not None:
            del self._by_control[controlled.control]
            controlled.control = None
        controlled.moved, controlled.copying = True, []
        prepared = controlled.prepared.result()
        controlled.prepared = self._connection.prepare(
            controlled.call, prepared.capabilities, prepared.placement if gone else None
        )
        controlled.answer = MidResult(Verb.LATE)

    def report(self, controlled: Controlled, tokens: Sequence[int], backtrack: int, *, sampled: bool) -> None:
        """Sets the report of what happened to a request; `post` sends it."""
        if controlled.control is not None:
            controlled.report = controlled.measured.report(
                controlled.control, tokens, backtrack, sampled=sampled
            )

    def post(self) -> None:
        """Sends the pending reports. The controllers then work on their answers."""
        by_session: dict[VocabularyRuntime, list[StepInput]] = {}
        for controlled in self._by_control.values():
            if controlled.copying:
                continue
            report, controlled.report = controlled.report, None
            session = controlled.session
            if report is None or session is None or session.lost:
                continue
            if session.runtime.is_live(report.seq):
                by_session.setdefault(session, []).append(report)
            else:
                controlled.fail(RuntimeFailure("the controller has ended"))
        for session, inputs in by_session.items():
            try:
                self._steps.append((session, session.runtime.begin_step(inputs)))
            except AiciError as error:
                self._fail(session, error)

    def collect_answers(self, *, ready: bool = False) -> None:
        """Waits for all pending answers and records them. `ready`: see `Step.wait`."""
        if self._copying:
            self._take_copies()
        steps, self._steps = self._steps, []
        for session, step in steps:
            try:
                for control, verdict in step.wait_pre(ready=ready, patient=False).items():
                    if verdict.verb == Verb.FORK:
                        self._fork(session, control, verdict.children)
                    else:
                        answer = MidResult(verdict.verb, error=verdict.error, waits=verdict.waits)
                        self._record_answer(control, answer, late=verdict.late)
                result = step.wait(ready=ready, patient=False)
            except AiciError as error:
                step.abandon()
                self._fail(session, error)
                continue
            for control, answer in result.mid.items():
                self._record_answer(control, answer)
            for control, text in result.logs.items():
                if (controlled := self._by_control.get(control)) is not None:
                    controlled.print(text)
            for control, values in result.variables.items():
                if (controlled := self._by_control.get(control)) is not None:
                    controlled.report_variables(values)

    def _take_copies(self) -> None:
        """Begins the sequences of requests whose copies have been made; the others are late."""
        end = time.monotonic() + _COPY_SECONDS
        waiting, self._copying = self._copying, []
        for controlled in waiting:
            session, control = controlled.session, controlled.control
            if control is None or session is None or session.lost:  # the request has ended
                continue
            while controlled.copying:
                child = controlled.branch(controlled.copying[0])
                child.by_engine = True
                try:
                    if not session.runtime.cloned(controlled.copying[0], max(0.0, end - time.monotonic())):
                        break
                    controlled.begun = True
                    self._by_control[controlled.copying[0]] = child
                    child.report = StepInput(controlled.copying[0])
                except (TemplateGoneError, WorkerDiedError) as error:
                    session.runtime.free([control])
                    self._fail_start(controlled, error)
                    break
                except AiciError as error:
                    child.control = None
                    child.fail(error)
                del controlled.copying[0]
                self.forked.append((controlled, child))
            if controlled.copying:
                self._copying.append(controlled)
                controlled.answer = MidResult(Verb.LATE)
            elif controlled.control is not None:
                controlled.report = StepInput(control)
        self.post()

    def guess(self, drafts: Mapping[str, Sequence[int]]) -> None:
        """Finds the answers after the drafts of these requests. Call it after `collect_answers`."""
        by_session: dict[VocabularyRuntime, list[tuple[Controlled, Sequence[int]]]] = {}
        for request_id, tokens in drafts.items():
            controlled = self.requests.get(request_id)
            if controlled is None or controlled.control is None or controlled.session is None:
                continue
            self._drop_guesses(controlled)
            if controlled.repeatable and controlled.answer is not None and not controlled.session.lost:
                by_session.setdefault(controlled.session, []).append((controlled, tokens))
        for session, wanted in by_session.items():
            try:
                self._drafts.follow(session.runtime, wanted)
            except AiciError as error:
                self._fail(session, error)

    def settle_pass(self, controlled: Controlled, tokens: Sequence[int]) -> Outcome:
        """Decides what becomes of the tokens of a pass, and frees the copies that are no longer needed."""
        before = controlled.control
        outcome = controlled.decide_outcome(tokens)
        if controlled.control != before:
            assert before is not None and controlled.control is not None
            self._by_control.pop(before, None)
            self._by_control[controlled.control] = controlled
        if controlled.spent:
            self._drop_guesses(controlled)
        return outcome

    def _drop_guesses(self, controlled: Controlled) -> None:
        controlled.drop_guesses()
        spent, controlled.spent = controlled.spent, []
        if spent and controlled.session is not None and not controlled.session.lost:
            try:
                controlled.session.runtime.free(spent)
            except AiciError as error:
                self._fail(controlled.session, error)

    def finish_request(
        self, request_id: str, tokens: Sequence[int] = (), *, sampled: bool = False
    ) -> Controlled | None:
        """Removes an ended request and frees its controller. Returns the request if it was controlled.

        `tokens`: its last tokens, if the controller has not received them yet. `sampled`: the only one of
        them was sampled.
        """
        controlled = self.requests.pop(request_id, None)
        if controlled is None:
            return None
        if not controlled.prepared.cancel():
            controlled.prepared.add_done_callback(_withdraw)
        self._drop_guesses(controlled)
        control, session = controlled.control, controlled.session
        controlled.control = None
        if control is None or self._by_control.pop(control, None) is None:
            return controlled
        assert session is not None
        if session.lost:
            return controlled
        runtime = session.runtime
        try:
            last = controlled.report
            if tokens:
                last = controlled.measured.report(control, tokens, sampled=sampled)
            if last is not None and last.tokens and runtime.is_live(control):
                step = runtime.begin_step([last._replace(final=True)])
                if controlled.events is None:
                    step.abandon()
                else:
                    result = step.wait(patient=False)
                    controlled.print(result.logs.get(control, ""))
                    controlled.report_variables(result.variables.get(control, {}))
            runtime.free([control])
        except AiciError as error:
            self._fail(session, error)
        return controlled

    def drop(self, child: Controlled) -> None:
        """Frees the controller of a forked child that will have no request."""
        if child.control is not None and self._by_control.pop(child.control, None) is not None:
            assert child.session is not None
            if not child.session.lost:
                child.session.runtime.free([child.control])

    def close(self) -> None:
        """Ends all requests and the connection."""
        for request_id in list(self.requests):
            self.finish_request(request_id)
        for _, step in self._steps:
            step.abandon()
        self._steps = []
        for _, child in self.forked:
            self.drop(child)
        self._connection.close()

    def _fork(self, session: VocabularyRuntime, control: int, children: Sequence[int]) -> None:
        parent = self._by_control.get(control)
        if parent is None:  # the request has ended in the meantime
            session.runtime.free(children)
            return
        for number in children:
            child = self._by_control[number] = parent.branch(number)
            self.forked.append((parent, child))

    def _record_answer(self, control: int, answer: MidResult, *, late: bool = False) -> None:
        controlled = self._by_control.get(control)
        if controlled is None:
            return
        if answer.verb == Verb.ERROR and answer.error is not None:
            self._fail_start(controlled, answer.error)
        else:
            controlled.begun = controlled.begun or not (late or answer.verb == Verb.LATE)
            controlled.answer = answer

    def _fail(self, session: VocabularyRuntime, error: AiciError) -> None:
        """Fails all requests of a session whose runtime has failed, and gives the session up."""
        log.error("the runtime of the controllers has failed: %s", error)
        for controlled in list(self._by_control.values()):
            if controlled.session is session:
                controlled.fail(error)
        self._steps = [(other, step) for other, step in self._steps if other is not session]
        self._connection.lose(session)


#: time limit for following drafts: the model makes a pass in this time
SECONDS = 0.02
#: after so many timeouts in a row, or one late answer, a controller gets no drafts for `PAUSE` passes
MAX_SLOW = 3
#: most copies of controllers for the drafts of one pass; each copy has two rows of shared memory
MAX_DRAFT_COPIES = 256


def _withdraw(prepared: Future[Prepared]) -> None:
    """Withdraws the offer of calls that was made for a request."""
    if not prepared.cancelled() and prepared.exception() is None and (offer := prepared.result().offer):
        offer.close()


class Drafts:
    """Follows drafts with copies of controllers, and fills `Controlled.guesses`."""

    def __init__(self, most: int) -> None:
        """`most`: most copies of controllers at a time."""
        self._most = most

    def follow(self, runtime: Runtime, wanted: Iterable[tuple[Controlled, Sequence[int]]]) -> None:
        """Finds the answers after the drafts of requests whose controllers have answered.

        A request's guesses end at a forbidden draft, and where the controller's answer is neither a row with
        the same temperature nor a splice of the drafts. Raises RuntimeFailure.
        """
        start, room, everybody = time.monotonic(), self._most, list(wanted)
        requests = everybody
        while asked := [
            (one, drafts, reported) for one, drafts in requests if (reported := _to_report(one, drafts))
        ][:room]:
            if time.monotonic() - start > SECONDS:
                for one, _, _ in asked:
                    one.slow += 1
                    if one.slow == MAX_SLOW:
                        one.slow, one.pause = 0, PAUSE
                return
            room -= len(asked)
            requests = self._ask(runtime, asked)
        for one, _ in everybody:
            one.slow = 0

    def _ask(
        self, runtime: Runtime, asked: list[tuple[Controlled, Sequence[int], list[int]]]
    ) -> list[tuple[Controlled, Sequence[int]]]:
        """Makes copies of controllers and reports the next drafts to them.

        Returns the requests whose copies have answered, with their drafts.
        """
        copies = runtime.clone_each([one.last_control for one, _, _ in asked], SECONDS)
        going = {copies[one.last_control]: each for each in asked if (one := each[0]).last_control in copies}
        inputs = [StepInput(copy, reported, 0, _samples(one)) for copy, (one, _, reported) in going.items()]
        result = runtime.begin_step(inputs).wait(patient=False)
        answered = []
        for copy, (one, drafts, _) in going.items():
            answer = result.mid.get(copy)
            if answer is None or answer.verb == Verb.LATE or isinstance(answer.error, RuntimeFailure):
                one.pause = PAUSE
                runtime.free([copy])
                continue
            if isinstance(answer, Look) or not one.samples_alike(answer):
                runtime.free([copy])
                continue
            log = result.logs.get(copy, "")
            one.guesses.append(Guess(drafts[len(one.guesses)], copy, answer, log))
            answered.append((one, drafts))
        return answered


def _to_report(controlled: Controlled, drafts: Sequence[int]) -> list[int]:
    """Returns the tokens to report to a copy for the next draft; empty if the draft is not allowed.

    Drafts that match a splice, except its last token, are added to the guesses here: they need no copy.
    """
    reported: list[int] = []
    for token in drafts[len(controlled.guesses) :]:
        answer = controlled.answer_behind(len(controlled.guesses))
        if answer is None:
            break
        if answer.verb == Verb.SAMPLE:
            return [token] if allows(answer.row, token) and not controlled.wants_mass else []
        if answer.verb != Verb.SPLICE or answer.backtrack or answer.ff_tokens[:1] != [token]:
            break
        reported.append(token)
        rest = answer.ff_tokens[1:]
        if not rest:
            return reported
        if token in controlled.stops:  # vLLM would end the text there
            break
        controlled.guesses.append(Guess(token, None, replace(answer, ff_tokens=rest)))
    return []


def _samples(controlled: Controlled) -> bool:
    """Returns whether the next draft would be sampled; otherwise it belongs to a splice."""
    answer = controlled.answer_behind(len(controlled.guesses))
    return answer is not None and answer.verb == Verb.SAMPLE


def engine_vocabulary(vllm_config: Any) -> Vocabulary:
    """Returns the vocabulary of the model that vLLM runs, as wide as its logits.

    Raises VocabularyError if the bytes of its tokens cannot be determined.
    """
    from vllm.tokenizers import cached_tokenizer_from_config

    model = vllm_config.model_config
    tokenizer = cached_tokenizer_from_config(model)
    if tokenizer is None:
        raise VocabularyError("controllers need a tokenizer: start vLLM without skip_tokenizer_init")
    eos = model.try_get_generation_config().get("eos_token_id")
    return tokenizer_vocabulary(tokenizer, model.tokenizer, model.get_vocab_size(), eos)
