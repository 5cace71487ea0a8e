"""What a user asks of the engine, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from pyaici.capabilities import ALL, Capabilities
from pyaici.engines.kept_log import MAX_LOG_BYTES

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError

#: as many as the APIs that clients know have; each is a line of an answer
MAX_TOP_LOGPROBS = 20

#: more tokens than any vocabulary has
MAX_TOP_K = 1 << 24

#: token ids, a text, or the messages of a chat (each with "role" and "content")
Prompt = str | Sequence[int] | Sequence[Mapping[str, str]]


class Origin(Enum):
    """Where a token of a sequence comes from."""

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
    """One prompt and what shall be made of it. Raises ValueError for values out of range."""

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
        """What the engine does for this request's controller: beam search makes and drops copies itself,
        and its beams go in step."""
        return Capabilities(fork=False, suspend=False) if self.beams > 1 else ALL


@dataclass(slots=True)
class GenerationResult:
    """One finished sequence."""

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
        """What follows the prompt."""
        return self.tokens[self.prompt_tokens :]
