"""The engine's side of a controller step: posts reports and applies the answers to sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError, ProtocolError, ResultError
from aicirt.contract.messages import StepInput
from pyaici.client.arguments import by_name
from pyaici.client.results import DraftedSample, Follow, Look, MidResult, Row
from pyaici.engines.engine import FinishReason

if TYPE_CHECKING:
    from pyaici.client.runtime import Runtime
    from pyaici.client.step import Step
    from pyaici.engines.batching.pool import SequencePool
    from pyaici.engines.batching.sequence import Sequence


class StepActions:
    """The controllers' part of a step: posted before the forward pass, awaited before and after it.

    If the runtime itself fails, every sequence of the step that has a controller ends with its error; the
    other sequences go on.
    """

    def __init__(
        self,
        pool: SequencePool,
        runtime: Runtime | None,
        seqs: list[Sequence],
        num_tokens: int,
        *,
        others_wait: bool = False,
    ) -> None:
        """`others_wait`: for this step, after the forward pass."""
        self._pool = pool
        self._runtime = runtime
        self._num_tokens = num_tokens
        self._others_wait = others_wait
        self._seqs = seqs
        self._closing, pool.closing = pool.closing, []
        self._by_control = {
            seq.control: seq
            for seq in (*seqs, *self._closing)
            if seq.control is not None and seq.leader is None and seq.held is None
        }
        self._step: Step | None = None

    def post(self) -> None:
        """Posts the reports of the sequences, and the final ones of those that ended in the last step."""
        runtime, inputs = self._runtime, []
        for control, seq in self._by_control.items():
            report = StepInput(control) if seq.report is None else seq.report
            inputs.append(report if seq.finish_reason is None else report._replace(final=True))
            seq.report = None
        if inputs:
            assert runtime is not None
            try:
                self._step = runtime.begin_step(inputs)
            except AiciError as error:
                self._fail(error)

    def before(self) -> list[Sequence]:
        """Waits for post_process and pre_process.

        Returns the sequences that take part in the forward pass, children of forks included.
        """
        active = {seq.id: seq for seq in self._seqs if seq.finish_reason is None}
        if self._step is None:
            return list(active.values())
        try:
            answers = self._step.wait_pre(ready=self._has_plain(), patient=self._pool.steady)
        except AiciError as error:
            self._fail(error)
            self._step.abandon()
            self._step = None
            return [seq for seq in active.values() if seq.finish_reason is None]
        waiting: list[Sequence] = []
        for control, answer in answers.items():
            seq = self._by_control[control]
            if seq.finish_reason is not None:  # the sequence has already ended, and its worker too
                continue
            if answer.verb != Verb.ERROR and not answer.late:
                seq.placement = None
            if answer.verb == Verb.SUSPEND:
                del active[seq.id]
                if answer.waits:
                    waiting.append(seq)
                if not seq.suspended:
                    seq.suspended = True
                    self._pool.recorder.suspend(seq)
            elif answer.verb == Verb.FORK:
                for child in self._pool.fork(seq, list(answer.children), by_engine=False):
                    assert child.control is not None
                    self._by_control[child.control] = child
                    if child.error is None:
                        active[child.id] = child
                    else:
                        self._pool.retire(child, FinishReason.ERROR, child.error)
                        self._closing.append(child)
            elif answer.verb in (Verb.STOP, Verb.ERROR):
                del active[seq.id]
                if self._pool.place_again(seq, answer.error):
                    continue
                reason = FinishReason.STOP if answer.verb == Verb.STOP else FinishReason.ERROR
                self._pool.retire(seq, reason, answer.error)
                self._closing.append(seq)  # its output arrives with the step's other answers
        # a sequence that is set aside goes on at any time after its wait, not in the step after it
        for seq in waiting if not active or not self._pool.steady else ():
            self._pool.set_aside(seq)
        return list(active.values())

    def collect_answers(self, active: list[Sequence]) -> dict[int, MidResult]:
        """Waits for mid_process. Returns the answers by controller number; records logs and variables.

        Attaches followers to their leaders. Shows distributions to the controllers that ask for them, and
        waits until they have decided. This is a step of the runtime without a pass of the model.
        """
        answers = self._wait_for_answers()
        self._attach_followers(active, answers)  # looks and samples of this step have their logits
        looks = {control: answer for control, answer in answers.items() if isinstance(answer, Look)}
        if not looks:
            return answers
        live = (seq for seq in active if seq.finish_reason is None and seq.is_computed)
        looking = [seq for seq in live if seq.control in looks]
        for seq in looking:
            assert seq.control is not None
            self._pool.answer_look(seq, looks[seq.control])
        others = len(looking) < len(active)
        again = StepActions(self._pool, self._runtime, looking, self._num_tokens, others_wait=others)
        again.post()
        again.before()
        answers |= again._wait_for_answers()
        self._attach_followers(looking, answers)
        return answers

    def _wait_for_answers(self) -> dict[int, MidResult]:
        answers: dict[int, MidResult] = {}
        if self._step is not None:
            try:
                result = self._step.wait(ready=self._has_plain(), patient=self._pool.steady)
            except AiciError as error:
                self._fail(error)
                self._step.abandon()
            else:
                answers = result.mid
                for control, text in result.logs.items():
                    if text and (seq := self._by_control.get(control)) is not None:
                        self._pool.recorder.print(seq, text)
                for control, values in result.variables.items():
                    if (seq := self._by_control.get(control)) is not None:
                        self._pool.recorder.write_variables(seq, by_name(values))
        self._close()
        return answers

    def abandon(self) -> None:
        """Abandons the step after the forward pass has failed; called instead of `collect_answers`."""
        if self._step is not None:
            self._step.abandon()
        self._close()

    def act(self, active: list[Sequence], answers: dict[int, MidResult]) -> list[tuple[Sequence, Row | None]]:
        """Carries out splices and ends. Returns the sequences that sample a token, with their rows."""
        sampling: list[tuple[Sequence, Row | None]] = []
        for seq in active:
            if seq.finish_reason is not None or seq.placing is not None:
                continue
            if seq.leader is not None:  # if the leader samples nothing in this step, the next one needs them
                seq.logits = None if seq.logits is None else self._pool.sampler.keep(seq.logits)
                continue
            if seq.held is not None and seq.control is not None:
                answers[seq.control], seq.held = seq.held, None
            if seq.control is None:
                sampling.append((seq, None))
            elif (answer := answers.get(seq.control)) is None:
                error = ProtocolError(f"the runtime gave no result for sequence {seq.control}")
                self._pool.finish(seq, FinishReason.ERROR, error)
            else:
                self._act(seq, answer, sampling)
        return sampling

    def _act(self, seq: Sequence, answer: MidResult, sampling: list[tuple[Sequence, Row | None]]) -> None:
        seq.holds_end, seq.skips_post = answer.hold_end, answer.skip_post
        if answer.verb in (Verb.SAMPLE, Verb.SPLICE):
            seq.placement = None
        if answer.verb == Verb.SAMPLE and not seq.is_computed:  # followers are not so far yet
            seq.held, seq.logits = answer, self._pool.sampler.keep(seq.last_logits)
        elif answer.verb == Verb.SAMPLE:
            sampling.append((seq, answer.row))
            seq.drafts = answer.drafts if isinstance(answer, DraftedSample) else []
        elif answer.verb == Verb.SPLICE:
            problem = self._problem(seq, answer)
            if problem is not None:
                self._pool.finish(seq, FinishReason.ERROR, ResultError(problem))
            else:
                self._pool.splice(seq, answer.backtrack, answer.ff_tokens)
        elif answer.verb in (Verb.LATE, Verb.LOOK):
            seq.logits = None if seq.logits is None else self._pool.sampler.keep(seq.logits)
            if isinstance(answer, Look) and seq.is_computed:  # once more: the next step answers it
                self._pool.answer_look(seq, answer)
        elif answer.verb == Verb.STOP:
            self._pool.finish(seq, FinishReason.STOP)
        elif not self._pool.place_again(seq, answer.error):
            self._pool.finish(seq, FinishReason.ERROR, answer.error)

    def _attach_followers(self, seqs: list[Sequence], answers: dict[int, MidResult]) -> None:
        for seq in seqs:
            answer = None if seq.control is None else answers.get(seq.control)
            if isinstance(answer, Follow) and seq.leader is None and seq.finish_reason is None:
                self._attach_to_leader(seq, answer)

    def _attach_to_leader(self, seq: Sequence, answer: Follow) -> None:
        leader = next((one for one in self._pool.live.values() if one.control == answer.leader), None)
        if leader is None:  # it has ended in this step
            self._pool.finish(seq, FinishReason.STOP)
        # a worker that has been broken out of may name any of its sequences
        elif leader.leader or seq.followers or leader is seq or leader.request_id != seq.request_id:
            error = ResultError("a sequence that others follow, or that follows another one, cannot lead")
            self._pool.finish(seq, FinishReason.ERROR, error)
        else:
            self._pool.attach_follower(seq, leader, answer)

    def _problem(self, seq: Sequence, answer: MidResult) -> str | None:
        """Returns what is wrong with a splice, or None. The model must never be fed an unknown id."""
        if not 0 <= answer.backtrack <= len(seq.tokens):
            return f"a splice removes {answer.backtrack} tokens, but the sequence has only {len(seq.tokens)}"
        for token in answer.ff_tokens:
            if not 0 <= token < self._num_tokens:
                return f"a splice appends token {token}; the model's are below {self._num_tokens}"
        return None

    def _has_plain(self) -> bool:
        """Returns whether there are sequences that must not wait for slow controllers: in the step or not."""
        plain = any(seq.control is None and seq.finish_reason is None for seq in self._seqs)
        return (self._others_wait or plain) and not self._pool.steady

    def _close(self) -> None:
        self._pool.complete(self._closing)
        self._closing = []

    def _fail(self, error: AiciError) -> None:
        for seq in self._by_control.values():
            if seq.finish_reason is None:
                self._pool.finish(seq, FinishReason.ERROR, error)
