"""The engine interface: requests, the events of each step, and results."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from array import array
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from aicirt.system.files import Closing
from pyaici.client.arguments import ALL, Capabilities
from pyaici.engines.sampling import Sampling as Sampling

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError
    from pyaici.client.arguments import Argument
    from pyaici.client.control import Placement
    from pyaici.client.runtime import Runtime
    from pyaici.tokens import Vocabulary


_Result = TypeVar("_Result")

#: Bytes of log kept for a request: a controller may print 64 KiB in each of thousands of steps.
#: The events of a stream carry the whole log.
MAX_LOG_BYTES = 1 << 20


@dataclass(slots=True)
class Counts:
    """Counts of an engine's steps, of the tokens of all sequences, and of forks."""

    #: `VllmEngine` counts only the steps in which vLLM returned outputs
    steps: int = 0
    sampled: int = 0
    forced: int = 0
    backtracked: int = 0
    forks: int = 0
    #: tokens that the cache had, so that they were not fed: of prompts and of sequences for `next_logits`;
    #: 0 if the engine does not count them
    reused: int = 0
    #: tokens that were fed again because the cache had lost them while their sequence was suspended: on vLLM
    read_again: int = 0

    @property
    def last_control_seconds(self) -> float | None:
        """Time that controllers and masks added to the last step; None if the engine does not measure it."""
        return None


#: the limit of the APIs that clients know; each entry is a line of a response
MAX_TOP_LOGPROBS = 20

#: token ids, a text, or the messages of a chat (each with "role" and "content")
Prompt = str | Sequence[int] | Sequence[Mapping[str, str]]


#: natural log-probability of a token, and (token, log-probability) of the most likely tokens at its place
TokenScore = tuple[float, list[tuple[int, float]]]


class Origin(Enum):
    """The origin of a token of a sequence."""

    PROMPT = "prompt"
    #: chosen by the sampler among what a controller allowed
    SAMPLED = "sampled"
    #: appended by a controller
    FORCED = "forced"


class FinishReason(Enum):
    """The reason why a sequence ended."""

    #: an end-of-sequence token was sampled, or was the last token of a splice
    EOS = "eos"
    #: `max_tokens` or the model's context is used up
    LENGTH = "length"
    #: the controller stopped it
    STOP = "stop"
    #: see `error`
    ERROR = "error"
    #: it backtracked so much that it sampled or appended `WORK_FACTOR` times its `max_tokens`
    WORK = "work"
    #: `Engine.cancel` or `Engine.close`
    CANCELLED = "cancelled"
    #: beam search dropped it in favour of better beams
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and the options of its generation. Raises ValueError for values out of range."""

    prompt: Prompt
    #: a bundled controller's name, or the id or tag of an upload (see `Runtime.find`); None = no control
    controller: str | None = None
    #: the controller's argument: a text, bytes, or a dict or list, which is passed as JSON
    arg: Argument = b""
    sampling: Sampling = field(default_factory=Sampling)
    #: sequences to sample; with `beams`, how many of the best to return
    n: int = 1
    #: > 1: beam search of this width instead of sampling; `sampling` is then ignored
    beams: int = 1
    #: a beam's score is divided by its length to this power
    length_penalty: float = 1.0
    #: most tokens after the prompt
    max_tokens: int = 128
    #: compute the log-probability of every sampled token; controllers with post_process get it anyway
    logprobs: bool = False
    #: with `logprobs`: for each sampled token, list this many most likely tokens
    top_logprobs: int = 0
    #: for every sampled token, count the tokens that the controller's row allows. This takes microseconds
    #: of each step; engines that do not see the rows report no count
    count_allowed: bool = False
    #: memory for the output of its controllers, all forks together; results contain the newest part
    max_log_bytes: int = MAX_LOG_BYTES
    #: owner of the request, where one engine serves several users; None = the runtime's own owner
    owner: str | None = None
    #: who answers the calls of its controller: functions by the names of calls, which run in threads, or the
    #: token of an offer (`Runtime.answerer`); "" = nobody
    calls: Mapping[str, Callable[..., Any]] | str = ""
    #: under which other runs of the owner, and `Runtime.answerer.send`, reach its controller's `receive`
    name: str = ""

    def __post_init__(self) -> None:
        for name in ("n", "beams", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.top_logprobs <= MAX_TOP_LOGPROBS:
            raise ValueError(f"top_logprobs is {self.top_logprobs}; it must be 0 to {MAX_TOP_LOGPROBS}")
        if self.beams > 1 and self.n > self.beams:
            raise ValueError(f"n is {self.n}; with {self.beams} beams it must be at most {self.beams}")
        if self.name and self.calls and isinstance(self.calls, str):
            raise ValueError("the token of an offer of calls has its own name: name the request in the offer")
        if self.beams > 1 and self.sampling.changes_logits:
            raise ValueError("beam search takes neither penalties, biases, min_tokens nor bad_words")

    @property
    def capabilities(self) -> Capabilities:
        """The engine's capabilities for this request's controller.

        Beam search allows neither fork nor suspend: it copies and drops beams itself, and advances all of
        them in step.
        """
        return Capabilities(fork=False, suspend=False, follow=False, drafts=0) if self.beams > 1 else ALL


@dataclass(frozen=True, slots=True)
class Written:
    """The tokens of an ended sequence after the prompt, in 13 bytes each: a request may have many forks."""

    tokens: array[int]
    #: 1 for tokens that a controller has appended, 0 for sampled ones
    forced: bytes
    logprobs: array[float]


#: memory of a result besides its text and tokens; measured and rounded up
_RESULT_BYTES = 1200


@dataclass(slots=True)
class GenerationResult:
    """A finished sequence."""

    #: number of the request, as `Engine.add` returned it
    request: int
    #: number of the sequence, as in events
    seq: int
    #: number of the sequence that it was forked from
    parent: int | None
    #: the text after the prompt, without special tokens; if the controller removed a part of the
    #: prompt, the text after the remaining part
    text: str
    #: the request's prompt, shared by all its sequences; `prompt_tokens` of it are left, since a controller
    #: may have removed its end
    prompt: Sequence[int]
    prompt_tokens: int
    #: the tokens after the prompt, the end-of-sequence token included
    written: Written
    finish_reason: FinishReason
    error: AiciError | None
    #: the controller's output
    log: str
    #: the variables that its request's controllers have written; names as in `VariablesChanged`. Includes
    #: those written in the last callback, also if that callback stopped or failed
    variables: dict[str, bytes]
    #: for beam search: sum of log-probabilities divided by length ** length_penalty
    score: float | None
    sampled: int
    forced: int
    backtracked: int
    #: seconds from `add` to the first token and to the end
    first_token_seconds: float
    seconds: float

    @property
    def tokens(self) -> list[int]:
        """The whole sequence: what is left of the prompt, then the tokens after it."""
        return [*self.prompt[: self.prompt_tokens], *self.written.tokens]

    @property
    def new_tokens(self) -> list[int]:
        """The tokens after the prompt."""
        return list(self.written.tokens)

    @property
    def origins(self) -> list[Origin]:
        """The origin of each of `tokens`."""
        return [Origin.PROMPT] * self.prompt_tokens + [
            Origin.FORCED if forced else Origin.SAMPLED for forced in self.written.forced
        ]

    @property
    def logprobs(self) -> list[float]:
        """For each of `tokens`: its natural log-probability before masking, nan where unknown."""
        return [math.nan] * self.prompt_tokens + list(self.written.logprobs)

    @property
    def nbytes(self) -> int:
        """About how many bytes of memory it takes, without what the request's sequences share."""
        return _RESULT_BYTES + sys.getsizeof(self.text) + 13 * len(self.written.tokens)


@dataclass(frozen=True, slots=True)
class Event:
    """An event of sequence `seq` of request `request`."""

    request: int
    seq: int


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The sequence has started. `prompt` is its text so far; the texts of later events follow it."""

    tokens: list[int]
    prompt: str


@dataclass(frozen=True, slots=True)
class PromptCached(Event):
    """The engine has the first `count` tokens of the prompt in its cache. There is no event for none."""

    count: int


@dataclass(frozen=True, slots=True)
class TokensAppended(Event):
    """Tokens were appended. `text` is the text that became readable with them.

    A character that is incomplete at the end comes with the event that completes it.
    """

    tokens: list[int]
    text: str
    origin: Origin
    #: natural log-probabilities before masking, one for each token, if requested and known
    logprobs: list[float] | None = None
    #: for each token, (token, log-probability) of the most likely tokens in its place, if the request has
    #: `top_logprobs` and they are known
    top_logprobs: list[list[tuple[int, float]]] | None = None
    #: number of tokens that the controller's row allowed in the place of a sampled token, if the request has
    #: `count_allowed` and the engine sees the rows
    allowed: int | None = None


@dataclass(frozen=True, slots=True)
class Backtracked(Event):
    """The last `count` tokens were removed, and with them `text`, the end of the readable text."""

    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Forked(Event):
    """The sequence was forked: `children` begin as copies of it."""

    children: list[int]
    #: made by the engine (n > 1, beam search), not by the controller
    by_engine: bool


@dataclass(frozen=True, slots=True)
class Suspended(Event):
    """The sequence skips steps from now on because its controller suspended it.

    Its next event ends the suspension.
    """


@dataclass(frozen=True, slots=True)
class Log(Event):
    """The controller printed `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class VariablesChanged(Event):
    """Controllers of the request wrote these variables.

    All forks of the request share its variables; `seq` is one of the forks. `values` has the newest value of
    each; `pyaici.client.arguments.variable_name` makes the names.
    """

    values: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Finished(Event):
    """The sequence has ended."""

    finish_reason: FinishReason
    error: AiciError | None


class Engine(Closing):
    """An inference engine whose requests may have controllers. Use it from one thread."""

    #: runs the controllers, and takes uploads for them; None if the engine was made without one
    runtime: Runtime | None
    #: encodes texts and chats, with the methods of one of the Transformers library; None if there is none
    tokenizer: Any
    vocabulary: Vocabulary
    #: token ids of prompts are below this
    num_tokens: int
    #: the most tokens of a prompt and its answer together
    max_context: int
    #: most tokens of the key-value cache; None = no limit, or the engine does not know
    cache_tokens: int | None

    def place(self, request: Request, gone: Placement | None = None) -> Placement | None:
        """Does the slow part of `add` ahead of time, in any thread. Pass the result as `placement`.

        `gone`: the earlier placement, if `add` raised TemplateGoneError for it. Raises the same errors as
        `add`.
        """
        return None

    @abstractmethod
    def add(self, request: Request, placement: Placement | None = None) -> int:
        """Adds a request and returns its number. Generation begins with the next step.

        `placement`: the result of `place` for this request. Raises ValueError if the engine does not support
        the request, and TemplateGoneError if the request must be placed again.
        """

    @abstractmethod
    def cancel(self, request_id: int) -> None:
        """Ends all live sequences of a request."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether a call of `step` has work to do."""

    def cache_use(self) -> dict[str, int]:
        """Returns how many tokens the key-value cache holds, by kind; empty if the engine does not know.

        May be called from any thread.
        """
        return {}

    @property
    @abstractmethod
    def stats(self) -> Counts:
        """Counts since the engine was created."""

    @abstractmethod
    def step(self) -> list[Event]:
        """Advances all requests by one step. Returns the events, oldest first."""

    def wake(self) -> None:
        """Ends a `step` that sleeps because all controllers wait. May be called from any thread."""

    def parked_requests(self) -> set[int]:
        """Returns the numbers of the requests all of whose sequences wait; empty if the engine does not know.

        Such a request takes part in no step, and the engine may have given its room in the cache to others.
        """
        return set()

    @abstractmethod
    def results(self, request_id: int) -> list[GenerationResult]:
        """Returns the results of a request that has ended. They can be fetched once.

        Raises ValueError while the request is running.
        """

    @abstractmethod
    def drain(self) -> list[Event]:
        """Returns the events that no step has returned: of requests added, cancelled or closed since."""

    @abstractmethod
    def close(self) -> None:
        """Ends all sequences and their controllers."""

    def run(
        self, requests: Iterable[Request] = (), on_event: Callable[[Event], None] | None = None
    ) -> list[GenerationResult]:
        """Adds these requests and steps until the engine has no work left.

        Returns the results in the order of `requests`. The results of one request are in the order of its
        sequences, or best first for beam search.
        """
        numbers = [self.add(request) for request in requests]
        while self.busy:
            for event in self.step():
                if on_event is not None:
                    on_event(event)
        return [result for number in numbers for result in self.results(number)]


def run_to_end(pieces: Generator[None, None, _Result]) -> _Result:
    """Runs work that is done in pieces, and returns its result."""
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            result: _Result = done.value
            return result
