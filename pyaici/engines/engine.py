"""The interface of engines: requests go in, steps bring events, and in the end there are results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pyaici.client.capabilities import ALL, Capabilities

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError
    from pyaici.client.link import Placement


#: Bytes of the log that is kept for a request: a controller may print 64 KiB in each of thousands of steps.
#: The events of a stream have all of it.
MAX_LOG_BYTES = 1 << 20


@dataclass(slots=True)
class Counts:
    """Steps of the engine; tokens of all sequences, and forks."""

    #: in which something came of it, or the model ran
    steps: int = 0
    sampled: int = 0
    forced: int = 0
    backtracked: int = 0
    forks: int = 0


#: as many as the APIs that clients know have; each is a line of an answer
MAX_TOP_LOGPROBS = 20

#: more tokens than any vocabulary has
MAX_TOP_K = 1 << 24

#: token ids, a text, or the messages of a chat (each with "role" and "content")
Prompt = str | Sequence[int] | Sequence[Mapping[str, str]]


class Origin(Enum):
    """The origin of a token of a sequence."""

    PROMPT = "prompt"
    #: chosen by the sampler among what a controller allowed
    SAMPLED = "sampled"
    #: appended by a controller
    FORCED = "forced"


class FinishReason(Enum):
    """Why a sequence ended."""

    #: an end-of-sequence token was sampled, or was the last of a splice
    EOS = "eos"
    #: `max_tokens`, or the model's context, is used up
    LENGTH = "length"
    #: the controller said so
    STOP = "stop"
    #: see `error`
    ERROR = "error"
    #: it took back so much that it had `WORK_FACTOR` times its `max_tokens` made
    WORK = "work"
    #: `HfEngine.cancel`
    CANCELLED = "cancelled"
    #: beam search went on with better ones
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Raises ValueError for values out of range."""

    #: 0 = the most likely token
    temperature: float = 0.0
    #: only the most likely tokens that together have at least this probability
    top_p: float = 1.0
    #: only this many most likely tokens; 0 = all
    top_k: int = 0
    #: makes a run repeatable; None draws one
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; it must be 0 or a positive number")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if not 0 <= self.top_k <= MAX_TOP_K:
            raise ValueError(f"top_k is {self.top_k}; it must be 0 (all) or a number of tokens")


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt and the options of its generation. Raises ValueError for values out of range."""

    prompt: Prompt
    #: controller: a module id or tag of the runtime; None = no control
    module: str | None = None
    #: the controller's argument
    arg: str | bytes = b""
    sampling: Sampling = field(default_factory=Sampling)
    #: sequences to be sampled; with `beams`, how many of the best are returned
    n: int = 1
    #: > 1: beam search of this width instead of sampling; `sampling` is not used
    beams: int = 1
    #: exponent of the length that a beam's score is divided by
    length_penalty: float = 1.0
    #: tokens after the prompt
    max_tokens: int = 128
    #: find the log-probability of every sampled token; for controllers with post_process it is found anyway
    logprobs: bool = False
    #: with `logprobs`: list so many most likely tokens for each that is sampled
    top_logprobs: int = 0
    #: count the tokens that the controller's row allows, for every token that is sampled; it takes
    #: microseconds of each step, and engines that do not see the rows tell nothing
    count_allowed: bool = False
    #: memory for what its controllers print, of all its forks together: the newest part is in the results
    max_log_bytes: int = MAX_LOG_BYTES
    #: whose request it is, where one engine works for several users; None = the runtime's own owner
    owner: str | None = None

    def __post_init__(self) -> None:
        for name in ("n", "beams", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.top_logprobs <= MAX_TOP_LOGPROBS:
            raise ValueError(f"top_logprobs is {self.top_logprobs}; it must be 0 to {MAX_TOP_LOGPROBS}")
        if self.beams > 1 and self.n > self.beams:
            raise ValueError(f"n is {self.n}; a search of {self.beams} beams has no more results than beams")

    @property
    def capabilities(self) -> Capabilities:
        """The engine's capabilities for this request's controller. Beam search makes and drops copies itself,
        and its beams go in step."""
        return Capabilities(fork=False, suspend=False) if self.beams > 1 else ALL


@dataclass(slots=True)
class GenerationResult:
    """A finished sequence."""

    #: number of the request, as `HfEngine.add` returned it
    request: int
    #: number of the sequence, as in events
    seq: int
    #: the sequence that it was forked from
    parent: int | None
    #: what follows the prompt, special tokens left out; if the controller took back a part of the
    #: prompt, what follows the part that is left
    text: str
    #: the whole sequence, the prompt included
    tokens: list[int]
    #: one for each token
    origins: list[Origin]
    #: natural log-probabilities before masking, one for each token; nan where it is not known
    logprobs: list[float]
    #: how many tokens of the prompt are left
    prompt_tokens: int
    reason: FinishReason
    error: AiciError | None
    #: what the controller printed
    log: str
    #: the variables that its request's controllers had written by its end; names as in `VariablesChanged`
    variables: dict[str, bytes]
    #: beam search: sum of log-probabilities divided by length ** length_penalty
    score: float | None
    sampled: int
    forced: int
    backtracked: int
    #: seconds from `add` to the first token and to the end
    first_token_seconds: float
    seconds: float

    @property
    def new_tokens(self) -> list[int]:
        """The tokens after the prompt."""
        return self.tokens[self.prompt_tokens :]


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to sequence `seq` of request `request`."""

    request: int
    seq: int


@dataclass(frozen=True, slots=True)
class Started(Event):
    """The sequence exists. `prompt` is its text; texts of later events follow it."""

    tokens: list[int]
    prompt: str


@dataclass(frozen=True, slots=True)
class TokensAppended(Event):
    """`text` is what became readable with these tokens: a character that is cut short waits for its rest."""

    tokens: list[int]
    text: str
    origin: Origin
    #: natural log-probabilities before masking, one for each token, if the request asked for them and they
    #: are known
    logprobs: list[float] | None = None
    #: for each token (token, log-probability) of the most likely ones in its place, if the request has
    #: `top_logprobs` and they are known
    top: list[list[tuple[int, float]]] | None = None
    #: how many tokens the controller's row allowed in the place of a sampled token, if the request has
    #: `count_allowed` and the engine sees the rows
    allowed: int | None = None


@dataclass(frozen=True, slots=True)
class BackTracked(Event):
    """The last `count` tokens were taken back, and with them `text`, the end of what was shown."""

    count: int
    text: str


@dataclass(frozen=True, slots=True)
class Forked(Event):
    """`children` begin as copies of this sequence."""

    children: list[int]
    #: made by the engine (n > 1, beam search), not by the controller
    by_engine: bool


@dataclass(frozen=True, slots=True)
class Suspended(Event):
    """The sequence began to skip steps, as its controller asked; it goes on with its next event."""


@dataclass(frozen=True, slots=True)
class Log(Event):
    """The controller printed `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class VariablesChanged(Event):
    """Controllers of the request have written these variables, which all its forks share; `seq` is one of
    them. Values are the last ones; names are as `pyaici.client.arguments.variable_name` tells them."""

    values: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Finished(Event):
    """The sequence has ended."""

    reason: FinishReason
    error: AiciError | None


class Engine(ABC):
    """An inference engine whose requests may have controllers. Use from one thread."""

    def place(self, request: Request, gone: Placement | None = None) -> Placement | None:
        """Does the slow part of `add` ahead of time, in any thread. Pass the result as `placement`.

        `gone`: an earlier placement, after TemplateGoneError. Raises what `add` raises.
        """
        return None

    @abstractmethod
    def add(self, request: Request, placement: Placement | None = None) -> int:
        """Takes a request and returns its number; it begins with the next step.

        `placement`: what `place` has returned for it. Raises ValueError if the engine cannot do what it asks
        for, and TemplateGoneError if it has to be placed again.
        """

    @abstractmethod
    def cancel(self, request_id: int) -> None:
        """Ends what is left of a request."""

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether there is anything to do."""

    @property
    @abstractmethod
    def stats(self) -> Counts:
        """Counts since the engine was made."""

    @abstractmethod
    def step(self) -> list[Event]:
        """Goes one step further with all requests. Returns what happened, oldest first."""

    @abstractmethod
    def results(self, request_id: int) -> list[GenerationResult]:
        """The results of a request that has ended; they can be fetched once.

        Raises ValueError before its end.
        """

    @abstractmethod
    def drain(self) -> list[Event]:
        """Events that no step has returned: of requests that were added, cancelled or closed since."""

    @abstractmethod
    def close(self) -> None:
        """Ends all sequences and their controllers."""

    def run(
        self, requests: Iterable[Request] = (), on_event: Callable[[Event], None] | None = None
    ) -> list[GenerationResult]:
        """Adds these requests and steps until there is nothing left to do.

        Returns the results of these requests, in their order; each request's in the order of its sequences,
        beams best first.
        """
        numbers = [self.add(request) for request in requests]
        while self.busy:
            for event in self.step():
                if on_event is not None:
                    on_event(event)
        return [result for number in numbers for result in self.results(number)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
