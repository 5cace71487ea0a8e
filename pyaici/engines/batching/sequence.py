"""The state of a sequence, and of the family of sequences that one request owns."""

from __future__ import annotations

import hashlib
import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aicirt.contract.errors import AiciError, SpaceError
from aicirt.contract.messages import StepInput, Truncation
from pyaici.engines import WORK_FACTOR
from pyaici.engines.batching.sampler import Choice
from pyaici.engines.engine import FinishReason, Origin
from pyaici.engines.record import NAN, Record
from pyaici.engines.sampling import MAX_BAD_WORD, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from collections.abc import Sequence as Seq
    from concurrent.futures import Future

    from pyaici.client.control import Placement
    from pyaici.client.results import MidResult, Row
    from pyaici.engines.batching.budget import Budget, Claim
    from pyaici.engines.batching.model import LogitsRow, SecondModel, Slot
    from pyaici.engines.engine import Request
    from pyaici.engines.sampling import Changes


def derive_seed(seed: int, number: int) -> int:
    """Returns the seed of a sequence's `number`-th copy: unrelated to the seed, and the same in every run."""
    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(slots=True)
class Copies:
    """Copies of a sequence that the engine has asked for, by the numbers of their controllers."""

    asked: deque[int] = field(default_factory=deque)
    #: None: without a controller
    made: list[int | None] = field(default_factory=list)
    refused: list[AiciError] = field(default_factory=list)


@dataclass(eq=False, slots=True, kw_only=True)
class Sequence(Record):
    """The state of one sequence. The cache has its first `slot.length` tokens; later steps feed the rest."""

    seed: int
    slot: Slot
    #: number of its controller at the runtime
    control: int | None = None
    #: its controller receives the log-probabilities of its tokens
    measured: bool = False
    #: from the controller's last answer: an end token appended in this step does not end the sequence
    holds_end: bool = False
    #: from the controller's last answer: it does not need the log-probability of this step's token
    skips_post: bool = False
    #: logits after the last token, float32 [N]; None if they must be computed
    logits: LogitsRow | None = None
    #: sequences with the same object here have the same tokens: one is computed, the others copy from it
    twins: object = field(default_factory=object)
    #: the report for the controller's next step; None = nothing happened
    report: StepInput | None = None
    copies: int = 0
    #: copies that the engine has asked for
    copying: Copies | None = None
    #: number of the turn in which it was last scheduled, counted over all sequences
    turn: int = 0
    #: time spent since it was last scheduled, on choosing tokens and on answering looks, in tokens of a pass
    sampling: float = 0.0
    #: counts of its tokens, from the first choice on that needs them
    tally: Tally | None = None
    #: since when (`time.monotonic`) its controller has waited for something: it takes no part in steps until
    #: the runtime wakes it. None: it does not wait
    parked: float | None = None
    #: tokens that its slot had when it gave back its room while it was parked
    given_back: int | None = None
    #: where its controller starts, until that has answered for the first time, or has been placed again
    placement: Placement | None = None
    #: its controller is being placed again; it is parked meanwhile
    placing: Future[Placement] | None = None
    #: tokens that its controller expects after the next one
    drafts: list[int] = field(default_factory=list)
    #: drafts that have been computed: each token with the logits after it
    ahead: deque[tuple[int, LogitsRow]] = field(default_factory=deque)
    #: the sequence that it follows, and its weight there
    leader: Sequence | None = None
    weight: float = 0.0
    #: the second model that computes its logits, and whose cache has its slot; None: the engine's own
    second: SecondModel | None = None
    #: sequences that follow it
    followers: list[Sequence] = field(default_factory=list)
    #: its controller's answer, which waits for the logits of followers
    held: MidResult | None = None
    _generator: random.Random | None = None
    #: the request's truncation
    _cut: Truncation = field(init=False)
    #: its options change the logits
    _changing: bool = field(init=False)

    def __post_init__(self) -> None:
        Record.__post_init__(self)
        sampling = self.request.sampling
        self._cut = Truncation(
            sampling.top_p, sampling.top_k, sampling.min_p, sampling.typical_p, sampling.top_n_sigma
        )
        self._changing = sampling.changes_logits

    @property
    def cost(self) -> float:
        """The cost of the sequence in a step, in tokens of a pass."""
        return max(1, self.missing) + len(self.drafts) + self.sampling

    @property
    def missing(self) -> int:
        """The number of tokens that the cache lacks."""
        return len(self.tokens) - self.slot.length

    @property
    def pending(self) -> list[int]:
        """The tokens that the cache lacks."""
        return self.tokens[self.slot.length :]

    @property
    def last_logits(self) -> LogitsRow:
        """The logits after the last token, float32 [N]. A forward pass must have computed them."""
        assert self.logits is not None
        return self.logits

    @property
    def is_computed(self) -> bool:
        """Whether the logits that its next token is sampled from are there."""
        return self.logits is not None and all(seq.logits is not None for seq in self.followers)

    @property
    def mixed_logits(self) -> LogitsRow:
        """The logits that its next token is sampled from, float32 [N], with those of its followers."""
        own = self.last_logits
        if not self.followers:
            return own
        mixed = own * (1 - sum(seq.weight for seq in self.followers))
        for seq in self.followers:
            line = seq.last_logits
            both = min(len(mixed), len(line))  # beyond are no tokens
            mixed[:both] += line[:both] * seq.weight
        mixed[(mixed != mixed) | (mixed == math.inf)] = -math.inf  # the model forbids it in one of them
        return mixed

    @property
    def generator(self) -> random.Random:
        """The sequence's own random generator, so that its draws do not depend on other sequences."""
        if self._generator is None:
            self._generator = random.Random(self.seed)
        return self._generator

    def note(
        self,
        tokens: list[int],
        backtrack: int = 0,
        *,
        sampled: bool = False,
        logprob: float = NAN,
        allowed_mass: float = NAN,
        top_logprobs: list[tuple[int, float]] | None = None,
    ) -> None:
        """Sets the report for the controller's next step; see `StepInput`."""
        if self.control is not None:
            self.report = StepInput(
                self.control,
                tokens=tokens,
                backtrack=backtrack,
                sampled=sampled,
                logprob=logprob,
                allowed_mass=allowed_mass,
                top_logprobs=top_logprobs,
            )

    def append(self, tokens: list[int], origin: Origin, logprobs: Seq[float] | None = None) -> str:
        """See `Record.append`."""
        text = Record.append(self, tokens, origin, logprobs)
        if self.tally is not None:
            self.tally.add(tokens)  # counts since the first choice, after the prompt
        ahead, complete = self.ahead, self.slot.length == len(self.tokens) - 1
        self._changed()
        if ahead and complete and tokens == [ahead[0][0]]:  # a draft, after which the logits are known
            self.slot.length = len(self.tokens)
            self.logits = ahead.popleft()[1]
            self.ahead = ahead
        return text

    def backtrack(self, count: int) -> str:
        """See `Record.backtrack`. `append` must follow, perhaps of no tokens."""
        if self.tally is not None and count:
            answered = min(count, self.new_tokens)
            self.tally.add(self.tokens[len(self.tokens) - answered :], -1)
            self.tally.add(
                self.tokens[len(self.tokens) - count : len(self.tokens) - answered], -1, answer=False
            )
        text = Record.backtrack(self, count)
        self.slot.length = min(self.slot.length, len(self.tokens))
        self.ahead = deque()
        return text

    def _changed(self) -> None:
        # the last token is always fed again, for its logits
        self.slot.length = min(self.slot.length, max(0, len(self.tokens) - 1))
        self.logits = None
        self.ahead = deque()
        self.twins = object()

    def fork(self, number: int, slot: Slot, control: int | None, error: AiciError | None = None) -> Sequence:
        """Returns a copy with its own number, slot and controller.

        `slot` must be a copy of this sequence's slot. With an `error`, the copy must end at once, and has no
        tokens: a worker that has been broken out of may ask for thousands.
        """
        self.copies += 1
        child = Sequence(
            id=number,
            request_id=self.request_id,
            request=self.request,
            seed=derive_seed(self.seed, self.copies),
            slot=slot,
            trail=self.trail,
            control=control,
            measured=self.measured,
            holds_end=self.holds_end,
            skips_post=self.skips_post,
            logits=self.logits,
            twins=self.twins,
            turn=self.turn,
            sampling=self.sampling,
            tally=None if self.tally is None or error is not None else self.tally.copy(),
            error=error,
        )
        self.copy_to(child, tokens=error is None)
        return child

    def choice(self, row: Row | None, ends: Collection[int]) -> Choice:
        """Returns the options for choosing its next token under the controller's row.

        `ends`: the vocabulary's end-of-sequence tokens.
        """
        temperature, cut = self.request.sampling.temperature, self._cut
        if row is not None and row.temperature is not None:
            temperature = row.temperature
        if row is not None and row.truncation is not None:
            cut = row.truncation.over(cut)
        return Choice(
            temperature=temperature,
            top_p=cut.top_p,
            top_k=cut.top_k,
            generator=self.generator if temperature > 0 else None,
            row=row,
            measure=self.request.logprobs or (self.measured and not self.skips_post),
            list_top=max(self.request.top_logprobs, 0 if row is None else row.top_logprobs),
            min_p=cut.min_p,
            typical_p=cut.typical_p,
            top_n_sigma=cut.top_n_sigma,
            changes=self._changes(ends) if self._changing else None,
        )

    def _changes(self, ends: Collection[int]) -> Changes:
        start = self.prompt_tokens
        if self.tally is None:
            self.tally = Tally(self.tokens[:start], self.tokens[start:])
        last = self.tokens[max(start, len(self.tokens) - MAX_BAD_WORD) :]
        return self.request.sampling.changes(self.tally, last, ends)

    def ends_at(self, token: int, ends: Collection[int]) -> bool:
        """Returns whether this token ends the sequence. `ends`: the vocabulary's end-of-sequence tokens."""
        sampling = self.request.sampling
        return token in sampling.stop_token_ids or (
            token in ends and not sampling.ignore_eos and not self.holds_end
        )

    def limit(self, max_context: int) -> FinishReason | None:
        """Returns LENGTH or WORK if the sequence has reached that limit, else None."""
        if self.new_tokens >= self.request.max_tokens or len(self.tokens) >= max_context:
            return FinishReason.LENGTH
        if self.work >= WORK_FACTOR * self.request.max_tokens:
            return FinishReason.WORK
        return None

    def room(self, max_context: int) -> int:
        """Returns how many tokens may still be appended."""
        return max(0, min(self.request.max_tokens - self.new_tokens, max_context - len(self.tokens)))


def width(request: Request) -> int:
    """Returns the most sequences that the engine itself creates for a request at the same time.

    A beam search may copy beams before it drops others, so it needs twice its width.
    """
    return 2 * request.beams if request.beams > 1 else request.n


def most_tokens(request: Request, prompt: Seq[int], max_context: int) -> int:
    """Returns the most tokens that a sequence of the request may have."""
    return min(max_context, len(prompt) + request.max_tokens)


@dataclass(slots=True)
class Family:
    """The sequences of a request and their claim to cache room, held while any of them has a slot."""

    request: Request
    budget: Budget
    #: most tokens that a sequence of the request may have
    tokens: int
    claim: Claim | None = None
    #: number of sequences that have slots
    placed: int = 0
    unfinished: int = 0

    def admit(self, *, again: bool) -> bool:
        """Claims the room for all sequences with which the request begins. Returns whether there was room.

        `again`: for one sequence that has given its room back.
        """
        if self.claim is not None:
            return self.budget.widen(self.claim, self.placed + 1)
        self.claim = self.budget.claim(1 if again else width(self.request), self.tokens)
        return self.claim is not None

    def widen(self, give_back: Callable[[float], bool]) -> None:
        """Claims room for one more sequence; parked ones give theirs back for it. Raises SpaceError."""
        while self.claim is None or not self.budget.widen(self.claim, self.placed + 1):
            if self.claim is None or not give_back(math.inf):
                raise SpaceError(
                    f"the key-value cache, which is limited to {self.budget.limit} tokens, has no room now "
                    f"for another sequence of up to {self.tokens} tokens"
                )

    def shrink(self) -> None:
        """Gives up the room that is no longer needed after a sequence has ended."""
        if self.claim is None:
            return
        if self.placed == 0:
            self.budget.release(self.claim)
            self.claim = None
        elif self.request.beams == 1:  # a beam search keeps its claim: it will copy beams again
            self.claim.sequences = self.placed
