"""A step: its inputs, its two waits, and its results."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from aicirt.contract.abi import MAX_MODEL_NAME, MID_HOLD_END, MID_SKIP_POST, Verb
from aicirt.contract.errors import MALFORMED, ProtocolError, RuntimeFailure
from aicirt.contract.messages import (
    DUE,
    FREE,
    INPUT_SEQ,
    MID,
    PRE,
    PRE_VERDICTS,
    RESULT_SEQ,
    RESULT_VERB,
    Due,
    Free,
)
from aicirt.ipc.ring import CRITICAL_SECONDS
from aicirt.settings import PEER_CHECK_SECONDS
from pyaici.client.channel import Patience
from pyaici.client.results import (
    DraftedSample,
    Follow,
    MidResult,
    PreResult,
    StepResult,
    check_children,
    check_drafts,
    check_splice,
    read_variables,
)
from pyaici.client.sequences import Outstanding

if TYPE_CHECKING:
    from aicirt.contract.messages import StepInput
    from pyaici.client.sequences import Sequences, WorkerLink


#: answers come within the step's deadline; this bounds the wait for a worker that has been stopped
STEP_TIMEOUT = 10.0
#: a worker may delay the sequences of others for so long; then its own are late
LATE_SECONDS = 1.0
#: pause between two checks whether another worker has answered: as long as results wait for others
_LOOK_SECONDS = 0.0005
_SAMPLE, _SEQ = Verb.SAMPLE, itemgetter(INPUT_SEQ)


@dataclass(slots=True)
class StepPart:
    """The part of a step that one worker runs."""

    link: WorkerLink
    inputs: Sequence[StepInput]
    #: whether some controller in it runs pre_process or post_process in this step
    critical: bool = False
    #: the inputs are not sent: the worker has yet to answer earlier steps, or the answers to those are unread
    late: bool = False
    #: set if the worker has ended or does not answer
    failure: RuntimeFailure | None = None
    #: the results of mid_process, if they came before they were asked for
    answer: list[Any] | None = None
    #: sequences whose verdicts of pre_process are late: they sit this step out
    suspended: Sequence[int] = ()
    _patience: Patience | None = None

    @property
    def seqs(self) -> list[int]:
        """The sequences of this part."""
        return [item.seq for item in self.inputs]

    @property
    def patience(self) -> Patience:
        """The wait for the worker's answer, from the first use on."""
        self._patience = self._patience or Patience(self.link, STEP_TIMEOUT)
        return self._patience

    @property
    def sits_out(self) -> bool:
        """Whether all its sequences sit this step out."""
        return len(self.suspended) == len(self.inputs)

    @property
    def behind(self) -> bool:
        """Whether all its sequences wait for the answer to an earlier step."""
        link = self.link
        return self.late and bool(link.outstanding) and link.unread.keys().isdisjoint(self.seqs)

    def failed(self, error: Exception) -> None:
        """Records why answers are missing; after an invalid answer the worker is read no further."""
        self.link.give_up()
        if isinstance(error, RuntimeFailure) and not isinstance(error, ProtocolError):
            self.failure = error
        else:
            self.failure = self.link.distrust(error)


class Step:
    """A step under way. Call `wait_pre` before the forward pass and `wait` after it, or `abandon`."""

    __slots__ = ("__weakref__", "_live", "_number", "_over", "_parts", "_pre")

    def __init__(self, live: Sequences, number: int, parts: list[StepPart]) -> None:
        self._live = live
        self._number = number
        self._parts = parts
        self._pre: dict[int, PreResult] | None = None
        #: why the results are not available, for the error; "" while the step is under way
        self._over = ""

    def wait_pre(self, *, ready: bool = False, patient: bool = True) -> dict[int, PreResult]:
        """Returns the results of post_process and pre_process, without sequences that just continue.

        On the critical path: returns at once if no controller of the step has either. The sequences of a
        worker that takes long are suspended, if there are others. `ready`, `patient`: see `wait`. Raises
        RuntimeFailure after `abandon`, and ClosedError if the runtime has been closed.
        """
        if self._pre is not None:
            return self._pre
        self._check_under_way()
        results: dict[int, PreResult] = {}
        for part in self._parts:
            if not part.critical and not part.late:
                continue
            if part.failure is None:
                try:
                    self._read_verdicts(part, self._verdicts(part, ready, patient), results)
                    results.update((seq, PreResult(Verb.SUSPEND, late=True)) for seq in part.suspended)
                    continue
                except (RuntimeFailure, *MALFORMED) as error:
                    part.failed(error)
            seqs = part.seqs
            self._live.free([child for seq in seqs if seq in results for child in results[seq].children])
            self._live.free(seqs)  # a worker that is merely slow must not keep them
            for seq in seqs:
                results[seq] = PreResult(Verb.ERROR, error=part.failure)
        self._pre = results
        return results

    def _verdicts(self, part: StepPart, ready: bool, patient: bool) -> Iterable[list[Any]]:
        """Waits for the verdicts of a part; suspends it if others should not wait for them any longer."""
        link = part.link
        if part.late:
            if any(late.pre for late in link.outstanding.values()):
                # it has had its time, unless all others have had theirs too
                all_late = not ready and all(other.behind for other in self._parts)
                link.receive(self._live, PEER_CHECK_SECONDS if all_late else 0.0)
                if any(late.pre for late in link.outstanding.values()):
                    part.suspended = [seq for seq in part.seqs if seq not in link.unread]
            return link.take_verdicts(part.seqs)
        if patient and len(self._parts) == 1:
            message: list[Any] | None = link.expect(PRE, self._number, STEP_TIMEOUT, look=CRITICAL_SECONDS)
        else:
            patience, look = part.patience, CRITICAL_SECONDS
            message = link.expect_within(PRE, self._number, patience, LATE_SECONDS, look=look)
        if message is None:
            part.suspended = part.seqs
            link.outstanding[self._number] = Outstanding(part.seqs, part.patience, pre=True)
        verdicts: Iterable[list[Any]] = () if message is None else message[PRE_VERDICTS]
        return verdicts

    def wait(self, *, ready: bool = False, patient: bool = True) -> StepResult:
        """Returns the results of mid_process for every sequence that goes on; usually without waiting.

        `ready`: the engine also has sequences without controllers, which must not wait for slow controllers
        longer than controllers wait for each other. `patient`: the engine has nothing else to do than to
        wait. Otherwise the sequences are late after a moment even if no worker answers. Call it once: raises
        RuntimeFailure the second time and after `abandon`, and ClosedError if the runtime has been closed.
        """
        self._check_under_way()
        pre = self.wait_pre(ready=ready, patient=patient)
        result = StepResult({})
        waiting = self._not_there(self._parts)
        ready = ready or len(waiting) < sum(not part.sits_out for part in self._parts)
        for part in self._parts:
            if part.failure is None and not part.late and not part.suspended:
                # the next step is near: the worker gets ready while the engine samples
                self._wake(part, Due(DUE, self._number, ready) if part.answer is None else None)
        if waiting and not ready:
            self._wait_for_one(waiting)
        if left := self._not_there(waiting):
            self._wait_for_all(left, ready or len(left) < len(waiting), patient)
        for part in self._parts:
            if part.failure is None:
                try:
                    if part.late:
                        seqs = [seq for seq in part.seqs if seq not in part.suspended]
                        part.answer = part.link.take_answer(seqs)
                    if part.answer is not None:
                        self._read_answer(part, pre, part.answer, result)
                    if part.late or part.answer is None:
                        self._postpone(part, pre, result)
                    continue
                except (RuntimeFailure, *MALFORMED) as error:
                    part.failed(error)
            self._fail(part, pre, result)
        self._over = "they have been fetched already"
        return result

    def _wait_for_all(self, waiting: list[StepPart], ready: bool, patient: bool) -> None:
        """Waits for the remaining answers; if other sequences are ready, or not `patient`, only for a moment.

        A worker that has not answered an earlier step delays nobody again.
        """
        end = time.monotonic() + LATE_SECONDS
        for part in waiting:
            self._wait_for(part, 0.0 if part.late else max(0.0, end - time.monotonic()))
        while (left := self._not_there(waiting)) and not ready and len(left) == len(waiting):
            for part in left:
                self._wait_for(part, PEER_CHECK_SECONDS)
            if not patient:
                left = self._not_there(left)
                break
        for part in left:
            if not part.late:
                going = self._lost(part, self._pre or {})
                part.link.outstanding[self._number] = Outstanding(going, part.patience, pre=False)

    def _wait_for(self, part: StepPart, seconds: float) -> None:
        try:
            if part.late:
                part.link.receive(self._live, seconds)
            else:
                part.answer = part.link.expect_within(MID, self._number, part.patience, seconds)
        except RuntimeFailure as error:
            part.failed(error)

    def _postpone(self, part: StepPart, pre: dict[int, PreResult], result: StepResult) -> None:
        """Makes the sequences late that have no result, since their worker is busy with an earlier step.

        The worker gets their inputs after that step. A sequence that has ended gets no more input.
        """
        over = [item.seq for item in part.inputs if item.final]
        for seq in self._lost(part, pre):
            if seq in self._live:
                result.mid.setdefault(seq, MidResult(Verb.STOP if seq in over else Verb.LATE))
        self._live.free(over)

    def _wait_for_one(self, waiting: list[StepPart]) -> None:
        """Waits until one of several parts has its answer; then notifies the other workers of the wait."""
        over = time.monotonic() + PEER_CHECK_SECONDS  # afterwards `expect` checks that the workers are alive
        while len(left := self._not_there(waiting)) == len(waiting) > 1 and time.monotonic() < over:
            left[0].link.bell.wait_for_ring(_LOOK_SECONDS)
        if len(left) < len(waiting):
            for part in left:
                self._wake(part, Due(DUE, self._number, True))

    def _not_there(self, parts: list[StepPart]) -> list[StepPart]:
        """Returns the parts whose answers are still to come; takes the answers that are there."""
        left = []
        for part in parts:
            if part.failure is None and part.answer is None and not part.suspended:
                try:
                    if part.late:
                        part.link.receive(self._live)
                    else:
                        part.answer = part.link.take_message(MID, self._number)
                except RuntimeFailure as error:
                    part.failed(error)
                else:
                    left += [part] if part.behind or (part.answer is None and not part.late) else []
        return left

    def _wake(self, part: StepPart, message: Due | None) -> None:
        try:
            part.link.wake(message)
        except RuntimeFailure as error:
            part.failed(error)

    def _read_verdicts(self, part: StepPart, verdicts: Any, results: dict[int, PreResult]) -> None:
        link, ours = part.link, set(part.seqs)
        for seq, verb, payload in verdicts:
            if seq in ours and seq in self._live:
                results[seq] = self._verdict(link, seq, verb, payload)
            elif verb == Verb.FORK:  # freed meanwhile: its children are unknown here
                link.send(Free(FREE, check_children(payload, link.number, self._live)))

    def _read_answer(
        self, part: StepPart, pre: dict[int, PreResult], answer: list[Any], result: StepResult
    ) -> None:
        """Reads the parts of an answer that concern the worker's own sequences.

        Raises ProtocolError, or one of `MALFORMED`, if the answer is invalid.
        """
        link, live = part.link, self._live
        _, _, entries, logs, *more = answer
        mid, sample = result.mid, link.rows.sample
        ours = set(map(_SEQ, part.inputs))
        if pre:
            ours.update([child for seq in ours if seq in pre for child in pre[seq].children])
        for entry in entries:
            seq = entry[RESULT_SEQ]
            if seq in ours and seq in live:
                mid[seq] = sample(entry) if entry[RESULT_VERB] == _SAMPLE else self._result(link, entry)
            else:  # freed while the step was under way
                link.rows.decline(entry)
        for seq, text in logs:
            if seq in ours and isinstance(text, str):
                result.logs[seq] = text
        for seq, variables in more[0] if more else ():
            if seq in ours:
                result.variables.setdefault(seq, {}).update(read_variables(variables))
        if discarded := link.discarded_variables:
            for seq in discarded.keys() & live.keys():
                if live[seq] is link:
                    result.variables[seq] = discarded[seq] | result.variables.get(seq, {})
            discarded.clear()
        for seq, flags, *drafts in more[1] if len(more) > 1 else ():
            if seq in ours and (found := mid.get(seq)) is not None:
                if drafts:
                    tokens = check_drafts(found.verb, drafts[0], link.segment.layout.vocab_size)
                    found = mid[seq] = DraftedSample(found.verb, found.row, drafts=tokens)
                found.hold_end, found.skip_post = bool(flags & MID_HOLD_END), bool(flags & MID_SKIP_POST)
                if part.late or self._number == link.last_step:  # else they were for the next step
                    link.calls.spare(seq, flags)

    def abandon(self) -> None:
        """Ends the step without results, for example because the engine's forward pass has failed.

        Answers that are still to come are declined, so that their rows are released; children of forks that
        were not reported yet are freed. The sequences stay live: the engine frees them, or steps them again.
        """
        if self._over:
            return
        for part in self._parts:
            if part.late:  # its answers are for later steps, except of sequences that `wait_pre` has ended
                for seq in [seq for seq in part.seqs if seq not in self._live]:
                    part.link.discard(seq)
            elif part.failure is None and part.answer is None and self._number not in part.link.outstanding:
                with contextlib.suppress(RuntimeFailure):  # a worker that has ended needs no cleanup
                    part.link.abandon(self._number)
        self._over = "the step was abandoned"

    def end(self, why: str) -> None:
        """Ends the step because the runtime has closed its links to workers; `why` is for errors."""
        self._over = self._over or why

    def holds(self, seq: int) -> bool:
        """Returns whether the step is under way and the sequence takes part."""
        if self._over:
            return False
        children = [verdict.children for verdict in (self._pre or {}).values()]
        return any(seq in part.seqs for part in self._parts) or any(seq in family for family in children)

    def _check_under_way(self) -> None:
        if self._over:
            self._live.check_open()
            raise RuntimeFailure(f"the results of this step are not available: {self._over}")

    def _fail(self, part: StepPart, pre: dict[int, PreResult], result: StepResult) -> None:
        """Ends every sequence of a failed part that was to go on, with the part's error."""
        lost = self._lost(part, pre)
        for seq in lost:
            result.mid[seq] = MidResult(Verb.ERROR, error=part.failure)
        self._live.free(lost)

    @staticmethod
    def _lost(part: StepPart, pre: dict[int, PreResult]) -> list[int]:
        """Returns the sequences of a part that were to go on."""
        lost = [seq for seq in part.seqs if pre.get(seq) is None or pre[seq].verb == Verb.FORK]
        return lost + [child for seq in lost if seq in pre for child in pre[seq].children]

    def _verdict(self, link: WorkerLink, seq: int, verb: int, payload: Any) -> PreResult:
        if verb == Verb.FORK:
            children = check_children(payload, link.number, self._live)
            self._live.inherit(seq, children)
            return PreResult(Verb.FORK, children=children)
        if verb == Verb.ERROR:
            error = link.problem_of(seq, payload)
            self._live.ended(seq)
            return PreResult(Verb.ERROR, error=error)
        if verb not in (Verb.STOP, Verb.CONTINUE, Verb.SUSPEND):
            raise ProtocolError("a result of pre_process has an unknown verb")
        if verb == Verb.STOP:
            self._live.ended(seq)
        return PreResult(Verb(verb), waits=verb == Verb.SUSPEND and bool(payload) and seq not in link.awake)

    def _following(self, link: WorkerLink, leader: Any, weight: Any, model: Any) -> Follow:
        if type(leader) is not int or self._live.get(leader) is not link:
            raise ProtocolError("a sequence follows one that is not live in its worker")
        if type(weight) is not float or not math.isfinite(weight):
            raise ProtocolError("a sequence follows another one with an invalid weight")
        if type(model) is not str or len(model) > MAX_MODEL_NAME:
            raise ProtocolError("a sequence follows another one with an invalid name of a model")
        return Follow(Verb.FOLLOW, leader=leader, weight=weight, model=model)

    def _result(self, link: WorkerLink, entry: list[Any]) -> MidResult:
        seq, verb, *fields = entry
        if verb == Verb.SPLICE:
            backtrack, ff_tokens, *_ = fields
            tokens = check_splice(backtrack, ff_tokens, link.segment.layout.vocab_size)
            link.rows.end_look(seq)
            return MidResult(Verb.SPLICE, backtrack=backtrack, ff_tokens=tokens)
        if verb == Verb.LATE:
            return MidResult(Verb.LATE)
        if verb == Verb.LOOK:
            return link.rows.look(entry)
        if verb == Verb.FOLLOW:
            return self._following(link, *fields)
        if verb not in (Verb.STOP, Verb.ERROR):
            raise ProtocolError("a result of mid_process has an unknown verb")
        error = None
        if verb == Verb.ERROR:
            problem, *_ = fields
            error = link.problem_of(seq, problem)
        self._live.ended(seq)
        return MidResult(Verb(verb), error=error)
