"""A controlled request: the results of its controller, and their effect on sampled tokens."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from aicirt.contract.abi import RowKind, Verb
from aicirt.contract.errors import AiciError, EmptyMaskError, ResultError, RuntimeFailure
from aicirt.contract.messages import StepInput
from pyaici.client.step import MidResult, Row
from pyaici.engines.lines import permits
from pyaici.engines.vllm.events import Events, variables_to_wire

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyaici.client.runtime import Runtime
    from pyaici.engines.vllm.arguments import ControllerCall
    from pyaici.engines.vllm.connection import Prepared, Session
    from pyaici.engines.vllm.groups import Group
    from pyaici.engines.vllm.outputs import Held


#: looking no further after so long: the model has made a pass meanwhile
SECONDS = 0.02
#: a controller that is late, or takes too long so many times in a row, has no drafts for so many passes
MOST_SLOW, PAUSE = 3, 8
#: of controllers for the drafts of one pass; each has two rows of shared memory
MOST_COPIES = 256


@dataclass(eq=False, slots=True)
class Guess:
    """A draft that the position before it allows, and the position behind it."""

    token: int
    #: the copy that has been told, by number at the runtime; None within a splice, which is told as a whole
    control: int | None
    answer: MidResult
    #: what the copy printed
    log: str = ""


class Drafts:
    """Fills `Controlled.guesses`."""

    def __init__(self, most: int) -> None:
        """`most`: copies of controllers that there may be."""
        self._most = most

    def follow(self, runtime: Runtime, wanted: Iterable[tuple[Controlled, Sequence[int]]]) -> None:
        """Finds the positions behind drafts of requests whose controllers have answered.

        A request's guesses end where a draft is forbidden, and where the controller says anything but which
        tokens may come. Raises RuntimeFailure.
        """
        start, room, everybody = time.monotonic(), self._most, list(wanted)
        requests = everybody
        while asked := [(one, drafts, told) for one, drafts in requests if (told := _told(one, drafts))][
            :room
        ]:
            if time.monotonic() - start > SECONDS:
                for one, _, _ in asked:
                    one.slow += 1
                    if one.slow == MOST_SLOW:
                        one.slow, one.pause = 0, PAUSE
                return
            room -= len(asked)
            requests = self._ask(runtime, asked)
        for one, _ in everybody:
            one.slow = 0

    def _ask(
        self, runtime: Runtime, asked: list[tuple[Controlled, Sequence[int], list[int]]]
    ) -> list[tuple[Controlled, Sequence[int]]]:
        """Has copies told of the next draft. Returns those that have answered."""
        copies = runtime.clone_each([one.last_control for one, _, _ in asked])
        going = {copies[one.last_control]: each for each in asked if (one := each[0]).last_control in copies}
        inputs = [StepInput(copy, told, 0, _samples(one)) for copy, (one, _, told) in going.items()]
        result = runtime.begin_step(inputs).wait()
        answered = []
        for copy, (one, drafts, _) in going.items():
            answer = result.mid.get(copy)
            if answer is None or answer.verb == Verb.LATE or isinstance(answer.error, RuntimeFailure):
                one.pause = PAUSE
                runtime.free([copy])
                continue
            log = result.logs.get(copy, "")
            one.guesses.append(Guess(drafts[len(one.guesses)], copy, answer, log))
            answered.append((one, drafts))
        return answered


def _told(controlled: Controlled, drafts: Sequence[int]) -> list[int]:
    """Returns the tokens that a copy gets for the next draft; none if the position before does not allow it.

    Drafts that a splice begins with are noted at once: they need no copy.
    """
    told: list[int] = []
    for token in drafts[len(controlled.guesses) :]:
        answer = controlled.answer_behind(len(controlled.guesses))
        if answer is None:
            break
        if answer.verb == Verb.SAMPLE:
            return [token] if is_mask(answer.row) and allows(answer.row, token) else []
        if answer.verb != Verb.SPLICE or answer.backtrack or answer.ff_tokens[:1] != [token]:
            break
        told.append(token)
        rest = answer.ff_tokens[1:]
        if not rest:
            return told
        if token in controlled.stops:  # vLLM would end the text there
            break
        controlled.guesses.append(Guess(token, None, replace(answer, ff_tokens=rest)))
    return []


def _samples(controlled: Controlled) -> bool:
    """Returns whether the next draft would be sampled; else it belongs to a splice."""
    answer = controlled.answer_behind(len(controlled.guesses))
    return answer is not None and answer.verb == Verb.SAMPLE


def is_mask(row: Row | None) -> bool:
    """Returns whether a row only allows and forbids tokens."""
    return row is None or row.kind in (RowKind.ALL, RowKind.BITMASK, RowKind.TOKEN)


def allows(row: Row | None, token: int) -> bool:
    """Returns whether a mask allows this token."""
    return row is None or permits(row, token)


log = logging.getLogger("vllm.aici")


class Ending(Enum):
    """Why a controlled request ends before the engine would end it."""

    STOP = "stop"
    ERROR = "error"


#: How many steps in a row a controller may let pass without a token, being late or splicing nothing.
MOST_IDLE = 1000


@dataclass(slots=True)
class Outcome:
    """The effect of a controller on the tokens that a step has sampled for a request."""

    #: so many of them count
    keep: int
    #: the controller knows so many of them already
    told: int = 0
    #: for each token that counts: was it forced, not sampled?
    forced: list[bool] = field(default_factory=list)
    #: for each token that counts: does the request go on if it is an end-of-sequence token?
    holds: list[bool] = field(default_factory=list)
    #: what copies printed that were taken, and behind how many tokens
    logs: list[tuple[int, str]] = field(default_factory=list)
    #: then these many are taken back, and these appended
    backtrack: int = 0
    append: Sequence[int] = ()
    #: the request goes on if the last of these is an end-of-sequence token
    hold_append: bool = False
    #: the request sits out steps until its controller says otherwise
    suspend: bool = False
    #: the engine has to compute the last token's logits again
    moves: bool = False
    ending: Ending | None = None


@dataclass(eq=False, slots=True)
class Controlled:
    """State of one request; `control` is its number at the runtime once it has started."""

    request_id: str
    call: ControllerCall
    prepared: Future[Prepared]
    #: tokens that end a text: they are not forced in the middle of one
    stops: Collection[int]
    session: Session | None = None
    control: int | None = None
    #: what the controller has not been told yet
    report: StepInput | None = None
    #: what it has said about the present position
    answer: MidResult | None = None
    #: the positions behind it, for drafts
    guesses: list[Guess] = field(default_factory=list)
    #: copies of the controller can go ahead of it
    repeatable: bool = False
    #: passes in a row in which following its drafts took too long
    slow: int = 0
    #: no drafts for so many passes
    pause: int = 0
    #: the engine goes on from the tokens of the last pass
    steady: bool = False
    #: sequences that are not needed any more: copies, and originals whose copy was taken
    spent: list[int] = field(default_factory=list)
    error: AiciError | None = None
    #: steps since the last token
    idle: int = 0
    taken_back: int = 0
    #: how many tokens of the prompt are left
    prompt_length: int = 0
    #: where the answer is held back
    held: Held | None = None
    #: what has happened to it, if clients want to know
    events: Events | None = None
    #: with forks: all that belong to the same controller
    group: Group | None = None

    def branch(self, control: int) -> Controlled:
        """A child that the controller has forked; it has a request later."""
        return Controlled(
            request_id="",
            call=self.call,
            prepared=self.prepared,
            stops=self.stops,
            session=self.session,
            control=control,
            repeatable=self.repeatable,
            taken_back=self.taken_back,
            prompt_length=self.prompt_length,
            held=None if self.held is None else self.held.copy(),
            events=None if self.events is None else Events(),
            group=self.group,
        )

    @property
    def follows(self) -> bool:
        """Whether its drafts can be followed."""
        return self.repeatable and not self.pause

    @property
    def last_control(self) -> int:
        """The copy that has been told the last draft that anybody has been told, or the controller."""
        controls = [guess.control for guess in self.guesses if guess.control is not None]
        control = controls[-1] if controls else self.control
        assert control is not None
        return control

    def answer_behind(self, drafts: int) -> MidResult | None:
        """Returns the controller's result for the position behind so many drafts; None if it is unknown."""
        if drafts == 0:
            return self.answer
        return self.guesses[drafts - 1].answer if drafts <= len(self.guesses) else None

    def drop_guesses(self) -> None:
        """No pass comes for them, or it is over."""
        self.spent += [guess.control for guess in self.guesses if guess.control is not None]
        self.guesses = []

    def fill(self, words: NDArray[np.int32], behind: int = 0) -> None:
        """Writes what may be sampled now, or behind so many drafts.

        int32 [ceil(V / 32)], bit t & 31 of word t >> 5 is token t.
        """
        answer = self.answer_behind(behind)
        row = answer.row if answer is not None and answer.verb == Verb.SAMPLE else None
        if self.session is None:  # it could not start, and will end with the reason
            words[:] = -1
        elif row is None:
            self._force(words, self._forced(answer))
        elif row.kind == RowKind.BITMASK:
            assert row.bits is not None
            count = min(len(words), len(row.bits))
            words[:count] = row.bits[:count].view(np.int32)
            words[count:] = 0
        elif row.kind == RowKind.TOKEN:
            self._force(words, row.token)
        elif row.kind == RowKind.ALL:
            words[:] = -1
        else:  # what is sampled does not count, see `take`
            self._force(words, self._forced(None))

    def _force(self, words: NDArray[np.int32], token: int) -> None:
        words[:] = 0
        words.view(np.uint32)[token >> 5] = np.uint32(1 << (token & 31))

    def _forced(self, answer: MidResult | None) -> int:
        """The first token of a splice; else any that ends nothing, which will not count."""
        if answer is not None and self._splices_first(answer):
            return answer.ff_tokens[0]
        assert self.session is not None
        return next((t for t in self.session.text_tokens if t not in self.stops), self.session.text_tokens[0])

    def _splices_first(self, answer: MidResult) -> bool:
        """Returns whether sampling can bring the first token of the splice."""
        if answer.verb != Verb.SPLICE or answer.backtrack or not answer.ff_tokens:
            return False
        return len(answer.ff_tokens) == 1 or answer.ff_tokens[0] not in self.stops

    def take(self, tokens: Sequence[int]) -> Outcome:
        """Decides about the tokens of a pass: drafts that were accepted, and one sampled behind.

        The answers that they were sampled under are used up. The controller is the copy that knows the last
        draft from now on.
        """
        accepted = told = 0
        forced: list[bool] = []
        holds: list[bool] = []
        logs: list[tuple[int, str]] = []
        for guess in self.guesses:
            if accepted + 1 == len(tokens) or tokens[accepted] != guess.token:
                break
            accepted += 1
            forced.append(self.answer is not None and self.answer.verb == Verb.SPLICE)
            holds.append(self.answer is not None and self.answer.hold_end)
            self.answer, self.idle = guess.answer, 0
            if guess.control is not None:
                assert self.control is not None
                self.spent.append(self.control)
                self.control, guess.control, told = guess.control, None, accepted
                logs.append((accepted, guess.log))
        self.drop_guesses()
        outcome = self._take(tokens[accepted])
        outcome.keep += accepted
        outcome.told, outcome.logs = told, logs
        outcome.forced, outcome.holds = forced + outcome.forced, holds + outcome.holds
        if accepted + 1 < len(tokens) and outcome.ending is None and not outcome.suspend:
            outcome.moves = True  # a draft was accepted behind which nothing is known
        self.pause = max(0, self.pause - 1)
        self.steady = not outcome.moves
        return outcome

    def _take(self, token: int) -> Outcome:
        answer, self.answer = self.answer, None
        verb = Verb.ERROR if answer is None else answer.verb
        if answer is not None and verb == Verb.SAMPLE:
            self.idle = 0
            if not is_mask(answer.row):
                self.error = ResultError(
                    "the controller adds biases to logits, which this path cannot: send the request with "
                    f'aici_path "logits" (controller {self.call.controller})'
                )
            elif allows(answer.row, token):
                return Outcome(keep=1, forced=[False], holds=[answer.hold_end])
            else:
                self.error = EmptyMaskError(
                    f"token {token} was sampled, which the controller forbids: what else the request forbids "
                    "(bad_words, allowed_token_ids, min_tokens, logit_bias) has left nothing"
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
            if self.idle <= MOST_IDLE:
                outcome.append = answer.ff_tokens
                return outcome
        if verb == Verb.SUSPEND:
            return Outcome(keep=0, suspend=True)
        if verb == Verb.LATE:
            self.idle += 1
            if self.idle <= MOST_IDLE:
                return Outcome(keep=0, moves=True)
        if verb == Verb.STOP:
            return Outcome(keep=0, ending=Ending.STOP)
        if self.error is None:
            self.error = (answer and answer.error) or ResultError(
                f"the controller let {self.idle} steps pass without a token"
            )
        return Outcome(keep=0, ending=Ending.ERROR)

    def goes_on(self, token: int) -> bool:
        """Returns whether the request goes on behind this token, where its controller holds its end."""
        return self.session is not None and token in self.session.ends

    def pieces(self, outcome: Outcome, tokens: Sequence[int]) -> list[tuple[list[int], bool]]:
        """The tokens that count, in pieces: ends that do not end the request (True), and others."""
        kept = [
            (token, hold and self.goes_on(token)) for token, hold in zip(tokens, outcome.holds, strict=True)
        ]
        return [([token for token, _ in group], held) for held, group in groupby(kept, key=itemgetter(1))]

    def print(self, text: str) -> None:
        """The controller has printed something."""
        if text:
            if self.events is not None:
                self.events.add("log", text)
            log.info("request %s: %s", self.request_id, text.rstrip("\n"))

    def write(self, values: Mapping[bytes, bytes]) -> None:
        """Controllers of its request have written variables."""
        if self.events is not None and values:
            self.events.add("variables", variables_to_wire(values))

    @property
    def failure(self) -> BaseException | None:
        """Why it failed, if it did: in its own time, or before it could start."""
        if self.error is None and self.prepared.done() and not self.prepared.cancelled():
            return self.prepared.exception()
        return self.error

    def tell_tokens(self, outcome: Outcome, tokens: Sequence[int]) -> None:
        """Notes for clients what has been sampled, and what was forced."""
        if self.events is not None:
            for token, forced in zip(tokens, outcome.forced, strict=False):
                self.events.token("forced" if forced else "sampled", token)

    def take_back(self, count: int, length: int) -> str | None:
        """Notes that so many of `length` tokens are taken back; why that cannot be, otherwise."""
        made = length if self.held is None else len(self.held.tokens)
        if count > made:
            return f"a splice takes back {count} tokens of {made}"
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
