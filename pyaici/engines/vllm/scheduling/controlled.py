"""A controlled request: its controller's answers, and their effect on sampled and draft tokens.

Neither this module nor the driver depends on vLLM.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import AiciError, EmptyMaskError, ResultError
from aicirt.contract.messages import StepInput, Truncation
from pyaici.client.masks import count_allowed, pack_row
from pyaici.client.results import Look, MidResult, Row
from pyaici.engines.vllm.frontend import Events, variables_to_wire
from pyaici.engines.vllm.workers import Logprobs, WorkerRow, fill_mask, make_row

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyaici.engines.connection import Prepared, VocabularyRuntime
    from pyaici.engines.vllm.frontend import ControllerCall

log = logging.getLogger("vllm.aici")

#: number of passes without drafts after an answer that is late, or that needs numbers about a sampled token
PAUSE = 8
#: The most steps in a row in which a controller may splice nothing.
MAX_IDLE = 1000
#: the number of steps in a row after which a late controller's request is scheduled no more until it answers
MAX_LATE = 3
_MASKS = RowKind.BITMASK, RowKind.ALL, RowKind.TOKEN
#: the rows of a pass whose token is discarded, which must not advance a seeded generator
DISCARDED = [WorkerRow(temperature=0.0)]


class Ending(Enum):
    """The reason why a controller ends its request before the engine would."""

    STOP = "stop"
    ERROR = "error"


@dataclass(slots=True)
class Outcome:
    """The effect of a controller on the tokens that a step has sampled for a request."""

    #: number of sampled tokens to keep
    keep: int
    #: number of kept tokens that the controller has already received
    reported: int = 0
    #: for each kept token: whether it was forced rather than sampled
    forced: Sequence[bool] = ()
    #: for each kept token: whether the request goes on if the token is an end-of-sequence token
    holds: Sequence[bool] = ()
    #: for each kept token: how many tokens its row allowed; None if unknown, or if it was forced
    allowed: Sequence[int | None] = ()
    #: output of copies that replaced the controller, each with the number of tokens before it
    logs: Sequence[tuple[int, str]] = ()
    #: number of tokens to remove after that, and the tokens to append then
    backtrack: int = 0
    append: Sequence[int] = ()
    #: the request goes on if the last appended token is an end-of-sequence token
    hold_append: bool = False
    #: the request skips steps until its controller resumes it
    suspend: bool = False
    #: it skips steps because the controller is late, or has to be placed again
    late: bool = False
    #: the engine must compute the last token's logits again
    moves: bool = False
    #: the model has finished its thinking, and the controller begins
    begins: bool = False
    ending: Ending | None = None


_NO_DRAFTS = Outcome(0)


@dataclass(eq=False, slots=True)
class Guess:
    """An allowed draft, with the controller's answer for the position after it."""

    token: int
    #: runtime number of the copy that received the draft; None within a splice, which is reported as a whole
    control: int | None
    answer: MidResult
    #: the copy's output
    log: str = ""


@dataclass(eq=False, slots=True)
class Held:
    """Output that is held back: tokens, and the statistics and events that vLLM sends with them."""

    tokens: list[int] = field(default_factory=list)
    prefill_stats: Any = None
    events: list[Any] = field(default_factory=list)

    def copy(self) -> Held:
        """Returns a copy of the tokens for a fork."""
        return Held(list(self.tokens))


@dataclass(frozen=True, slots=True)
class Measured:
    """The fields of `StepInput` about a sampled token."""

    logprob: float = math.nan
    allowed_mass: float = math.nan
    top_logprobs: list[tuple[int, float]] | None = None

    def report(self, control: int, tokens: Sequence[int], backtrack: int = 0, *, sampled: bool) -> StepInput:
        """Returns the report of a step. Without `sampled` it says nothing about a token that was drawn."""
        if not sampled:
            shown = None if tokens or backtrack else self.top_logprobs  # answers a look
            return StepInput(control, list(tokens), backtrack, top_logprobs=shown)
        return StepInput(
            control,
            list(tokens),
            backtrack,
            True,
            logprob=self.logprob,
            allowed_mass=self.allowed_mass,
            top_logprobs=self.top_logprobs,
        )


UNKNOWN = Measured()


@dataclass(eq=False, slots=True)
class Controlled:
    """The state of one request. `control` is its controller's number at the runtime once it has started."""

    request_id: str
    call: ControllerCall
    prepared: Future[Prepared]
    #: tokens that end a text; they are not forced in the middle of a splice
    stops: Collection[int]
    session: VocabularyRuntime | None = None
    control: int | None = None
    #: the controller has given an answer
    begun: bool = False
    #: the controller could not start where it was placed, and has been placed again
    moved: bool = False
    #: the model thinks; the controller begins after that
    thinking: bool = False
    #: the report that `ControllerDriver.post` sends next
    report: StepInput | None = None
    #: the controller's answer for the current position
    answer: MidResult | None = None
    #: the answers after each followed draft
    guesses: list[Guess] = field(default_factory=list)
    #: copies of the controller may run ahead of it
    repeatable: bool = False
    #: the controller has a post_process
    has_post: bool = False
    #: from the last pass: float32 [positions], see `workers.MASS`; None = unknown
    masses: NDArray[np.float32] | None = None
    #: from the last pass; None = unknown
    logprobs: Logprobs | None = None
    #: what the controller learns about the last sampled token
    measured: Measured = UNKNOWN
    #: number of passes in a row in which following its drafts took too long
    slow: int = 0
    #: number of passes without drafts
    pause: int = 0
    #: the engine continues from the tokens of the last pass
    steady: bool = False
    #: sequences to free at the runtime: copies, and controllers that a copy has replaced
    spent: list[int] = field(default_factory=list)
    error: AiciError | None = None
    #: steps since the last token
    idle: int = 0
    #: number of tokens removed so far
    taken_back: int = 0
    #: number of tokens of the prompt that are left
    prompt_length: int = 0
    #: the output that is held back, with `aici_hold`
    held: Held | None = None
    #: tokens in its cache when it was suspended; 0 = it has been running since
    computed: int = 0
    #: events to send, if the client asked for them
    events: Events | None = None
    #: the engine has made it as a copy; its controller has not forked
    by_engine: bool = False
    #: controllers of copies that have been asked for and come before the first step
    copying: list[int] = field(default_factory=list)

    def branch(self, control: int) -> Controlled:
        """Returns a child that the controller has forked; it gets a request later."""
        return Controlled(
            request_id="",
            call=self.call,
            prepared=self.prepared,
            stops=self.stops,
            session=self.session,
            control=control,
            begun=True,
            repeatable=self.repeatable,
            has_post=self.has_post,
            taken_back=self.taken_back,
            prompt_length=self.prompt_length,
            held=None if self.held is None else self.held.copy(),
            events=None if self.events is None else Events(),
        )

    @property
    def follows(self) -> bool:
        """Whether its drafts can be followed."""
        return self.thinking or (self.repeatable and not self.pause)

    @property
    def last_control(self) -> int:
        """The copy that received the last followed draft, or the controller if there is no copy."""
        controls = [guess.control for guess in self.guesses if guess.control is not None]
        control = controls[-1] if controls else self.control
        assert control is not None
        return control

    def answer_behind(self, drafts: int) -> MidResult | None:
        """Returns the controller's answer for the position after this many drafts; None if unknown."""
        if drafts == 0:
            return self.answer
        return self.guesses[drafts - 1].answer if drafts <= len(self.guesses) else None

    @property
    def wants_mass(self) -> bool:
        """Whether the controller needs log-probabilities of this pass and the allowed mass."""
        return any(is_measured(answer, has_post=self.has_post) for answer in self._answers())

    def samples_alike(self, answer: MidResult) -> bool:
        """Returns whether an answer after the guesses samples at their temperature.

        vLLM's samplers have one temperature for all positions of a request.
        """
        known = {each.row.temperature for each in self._answers() if each.row is not None}
        return answer.row is None or not known or answer.row.temperature in known

    def rows(self, parameters: Any) -> list[WorkerRow]:
        """Returns what the masks do not express, for each position of a pass; empty if there is nothing.

        `parameters`: vLLM's SamplingParams of the request.
        """
        answer = self.answer
        if answer is not None and answer.verb in (Verb.LATE, Verb.SUSPEND):
            return DISCARDED
        if isinstance(answer, Look):  # the token is discarded, too
            return [WorkerRow(temperature=0.0, mass=True, top=answer.top_logprobs)]
        if answer is None or (not self.guesses and not self.has_post and is_mask(answer.row)):
            return []  # nearly always
        mass = self.wants_mass
        given = [each.row for each in self._answers()]
        own = None
        if any(row is not None and row.truncation is not None for row in given):
            # -1 and 0 are all tokens
            own = Truncation(parameters.top_p, max(0, parameters.top_k), parameters.min_p)
        made = [WorkerRow() if row is None else make_row(row, mass=mass, own=own) for row in given]
        return made if any(row.changes or row.mass for row in made) else []

    def _answers(self) -> list[MidResult]:
        """Returns the controller's answers for the positions of a pass."""
        return [] if self.answer is None else [self.answer, *(guess.answer for guess in self.guesses)]

    def drop_guesses(self) -> None:
        """Forgets the guesses after a pass, or if there is no pass for them; their copies become `spent`."""
        self.spent += [guess.control for guess in self.guesses if guess.control is not None]
        self.guesses = []

    def fill(self, words: NDArray[np.int32], behind: int = 0) -> None:
        """Writes the mask of tokens that may be sampled after `behind` drafts.

        `words`: int32 [ceil(V / 32)]; bit t & 31 of word t >> 5 is token t.
        """
        answer = self.answer_behind(behind)
        row = answer.row if answer is not None and answer.verb == Verb.SAMPLE else None
        if self.session is None:  # the controller could not start; the request ends with the error
            words[:] = -1
        elif row is None:
            pack_row(words.view(np.uint32), Row(RowKind.TOKEN, token=self._forced(answer)))
        elif row.kind in (RowKind.SPARSE, RowKind.DENSE):
            fill_mask(row, words)
        else:
            pack_row(words.view(np.uint32), row)

    def _forced(self, answer: MidResult | None) -> int:
        """Returns the first token of a splice, or else a token that ends nothing and will be discarded."""
        if answer is not None and self._splices_first(answer):
            return answer.ff_tokens[0]
        assert self.session is not None
        return next((t for t in self.session.text_tokens if t not in self.stops), self.session.text_tokens[0])

    def _splices_first(self, answer: MidResult) -> bool:
        """Returns whether sampling can produce the first token of the splice."""
        if answer.verb != Verb.SPLICE or answer.backtrack or not answer.ff_tokens:
            return False
        return len(answer.ff_tokens) == 1 or answer.ff_tokens[0] not in self.stops

    def decide_outcome(self, tokens: Sequence[int]) -> Outcome:
        """Decides what becomes of a pass's tokens: accepted drafts and a token sampled after them.

        Uses up the answers that the tokens were sampled under. The copy that received the last accepted draft
        replaces the controller.
        """
        drafts = self._accept_drafts(tokens) if self.guesses else _NO_DRAFTS
        self.measured = UNKNOWN
        if self.answer is not None and is_measured(self.answer, has_post=self.has_post):
            self.measured = measure(self.answer, self.masses, self.logprobs, drafts.keep)
            self.pause = PAUSE + 1  # no copy can know the numbers about a draft
        allowed = self._count_allowed()
        outcome = self._outcome_of(tokens[drafts.keep])
        outcome.allowed = (*drafts.allowed, allowed)
        if drafts.keep:
            outcome.keep += drafts.keep
            outcome.reported, outcome.logs = drafts.reported, drafts.logs
            outcome.forced, outcome.holds = (*drafts.forced, *outcome.forced), (*drafts.holds, *outcome.holds)
        if drafts.keep + 1 < len(tokens) and outcome.ending is None and not outcome.suspend:
            outcome.moves = True  # a draft was accepted, but there is no answer for the position after it
        self.pause = max(0, self.pause - 1)
        self.steady = not outcome.moves
        return outcome

    def _accept_drafts(self, tokens: Sequence[int]) -> Outcome:
        """Uses up the guesses whose drafts the model has accepted. Returns what becomes of these tokens."""
        forced, holds, allowed, logs = list[bool](), list[bool](), list[int | None](), list[tuple[int, str]]()
        outcome = Outcome(0, 0, forced, holds, allowed, logs)
        for guess in self.guesses:
            if outcome.keep + 1 == len(tokens) or tokens[outcome.keep] != guess.token:
                break
            outcome.keep += 1
            allowed.append(self._count_allowed())
            forced.append(self.answer is not None and self.answer.verb == Verb.SPLICE)
            holds.append(self.answer is not None and self.answer.hold_end)
            self.answer, self.idle = guess.answer, 0
            if guess.control is not None:
                assert self.control is not None
                self.spent.append(self.control)
                self.control, guess.control, outcome.reported = guess.control, None, outcome.keep
                logs.append((outcome.keep, guess.log))
        self.drop_guesses()
        return outcome

    def _count_allowed(self) -> int | None:
        """Returns how many tokens the controller's answer allows, if the client wants to know."""
        if not self.call.counts or self.session is None or self.answer is None or self.answer.row is None:
            return None
        return count_allowed(self.answer.row, self.session.num_known)

    def _outcome_of(self, token: int) -> Outcome:
        answer, self.answer = self.answer, None
        verb = Verb.ERROR if answer is None else answer.verb
        if answer is not None and verb == Verb.SAMPLE:
            self.idle = 0
            if allows(answer.row, token):
                return Outcome(keep=1, forced=[False], holds=[answer.hold_end])
            else:
                self.error = EmptyMaskError(
                    f"token {token} was sampled, which the controller forbids: the request's other options "
                    "(bad_words, allowed_token_ids, min_tokens, logit_bias) forbid all tokens that it allows"
                )
            return Outcome(keep=0, ending=Ending.ERROR)
        if answer is not None and verb == Verb.SPLICE:
            first = self._splices_first(answer) and token == answer.ff_tokens[0]
            hold = answer.hold_end
            self.idle = 0 if answer.ff_tokens else self.idle + 1
            if first and len(answer.ff_tokens) == 1:
                return Outcome(keep=1, forced=[True], holds=[hold])
            outcome = Outcome(keep=0, backtrack=answer.backtrack, moves=True, hold_append=hold)
            if first:
                outcome.keep, outcome.append = 1, answer.ff_tokens[1:]
                outcome.forced, outcome.holds = [True], [False]
                return outcome
            if self.idle <= MAX_IDLE:
                outcome.append = answer.ff_tokens
                return outcome
        if verb == Verb.SUSPEND:
            return Outcome(keep=0, suspend=True)
        if verb == Verb.LATE:
            self.idle += 1
            if self.control is None or self.idle > MAX_LATE:
                return Outcome(keep=0, suspend=True, late=True)
            return Outcome(keep=0, moves=True)
        if verb == Verb.LOOK:
            return Outcome(keep=0, moves=True)
        if verb == Verb.STOP:
            return Outcome(keep=0, ending=Ending.STOP)
        if self.error is None:
            self.error = (answer and answer.error) or ResultError(
                f"the controller gave no token in {self.idle} steps in a row"
            )
        return Outcome(keep=0, ending=Ending.ERROR)

    def goes_on(self, token: int) -> bool:
        """Returns whether the request goes on after this token if its controller holds its end.

        Only end-of-sequence tokens can be held.
        """
        return self.session is not None and token in self.session.ends

    def pieces(self, outcome: Outcome, tokens: list[int]) -> list[tuple[list[int], bool]]:
        """Returns the kept tokens in pieces: (tokens, whether they are ends that do not end the request)."""
        if True not in outcome.holds:
            return [(tokens, False)] if tokens else []
        kept = [
            (token, hold and self.goes_on(token)) for token, hold in zip(tokens, outcome.holds, strict=True)
        ]
        return [([token for token, _ in group], held) for held, group in groupby(kept, key=itemgetter(1))]

    def print(self, text: str) -> None:
        """Logs the controller's output, and adds it to the events."""
        if text:
            if self.events is not None:
                self.events.add("log", text)
            log.info("request %s: %s", self.request_id, text.rstrip("\n"))

    def report_variables(self, values: Mapping[bytes, bytes]) -> None:
        """Adds variables that controllers of its request wrote to the events."""
        if self.events is not None and values:
            self.events.add("variables", variables_to_wire(values))

    @property
    def failure(self) -> BaseException | None:
        """The error of the request or of preparing its controller, if any."""
        if self.error is None and self.prepared.done() and not self.prepared.cancelled():
            return self.prepared.exception()
        return self.error

    def report_tokens(self, outcome: Outcome, tokens: Sequence[int]) -> None:
        """Adds the sampled and forced tokens to the events."""
        if self.events is not None:
            for at, (token, forced) in enumerate(zip(tokens, outcome.forced, strict=False)):
                count = outcome.allowed[at] if at < len(outcome.allowed) else None
                if forced or count is None:
                    self.events.token("forced" if forced else "sampled", token)
                else:
                    self.events.add("sampled", [token], count)

    def report_read_again(self, computed: int) -> None:
        """Adds the tokens that are read again after a suspension. `computed`: those that the cache has."""
        again, self.computed = self.computed - computed, 0
        if self.events is not None and again > 0:
            self.events.add("read_again", again)

    def take_back(self, count: int, length: int) -> str | None:
        """Records that the last `count` of `length` tokens are removed. Returns the reason if impossible."""
        made = length if self.held is None else len(self.held.tokens)
        if count > made:
            return f"a splice removes {count} tokens, but the sequence has only {made}"
        if self.held is not None:
            del self.held.tokens[len(self.held.tokens) - count :]
        if self.events is not None:
            self.events.add("back", count)
        self.prompt_length = min(self.prompt_length, length - count)
        self.taken_back += count
        return None

    def fail(self, error: AiciError) -> None:
        """Ends the request with this error when the engine next has tokens for it."""
        self.error = self.error or error
        self.drop_guesses()
        self.answer = MidResult(Verb.ERROR, error=self.error)


def is_mask(row: Row | None) -> bool:
    """Returns whether a row only allows and forbids tokens."""
    return row is None or (
        row.kind in _MASKS and row.temperature is None and row.truncation is None and row.top_logprobs == 0
    )


def allows(row: Row | None, token: int) -> bool:
    """Returns whether a row allows this token."""
    return row is None or row.permits(token)


def is_measured(answer: MidResult, *, has_post: bool) -> bool:
    """Returns whether a controller with this answer needs numbers about the token that is sampled next.

    `has_post`: it has a post_process.
    """
    if isinstance(answer, Look):
        return True
    top = answer.row is not None and answer.row.top_logprobs > 0
    return answer.verb == Verb.SAMPLE and (top or (has_post and not answer.skip_post))


def measure(
    answer: MidResult,
    masses: NDArray[np.float32] | None,
    logprobs: Logprobs | None,
    position: int,
) -> Measured:
    """Returns the numbers about the token at this position of a pass, which `answer` has allowed.

    `masses`, `logprobs`: what the workers have reported for the request; None if nothing.
    """
    if masses is None or logprobs is None or position >= len(masses):
        return UNKNOWN
    asks = answer if isinstance(answer, Look) else answer.row
    count = 0 if asks is None else asks.top_logprobs
    top = None
    if count:
        tokens, values = logprobs.tokens[position, :count], logprobs.values[position, :count]
        top = list(zip(tokens.tolist(), values.tolist(), strict=True))
    mass = min(1.0, math.exp(float(masses[position])))
    return Measured(float(logprobs.sampled[position]), mass, top)
