"""One sequence as its user sees it: its tokens, their text, where they came from, and how it ended."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyaici.engines.kept_log import KeptLog
from pyaici.engines.request import FinishReason, GenerationResult, Origin, Request

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError
    from pyaici.engines.text import TextTrail

NAN = math.nan


@dataclass(eq=False, slots=True, kw_only=True)
class Record:
    """State of one sequence."""

    id: int
    request_id: int
    request: Request
    trail: TextTrail
    parent: int | None = None
    tokens: list[int] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    #: tokens of the prompt that are left
    prompt_tokens: int = 0
    #: sum of the log-probabilities of its tokens, as far as they are known
    score: float = 0.0
    #: tokens made, what was taken back included; a splice that adds none counts as one
    work: int = 0
    sampled: int = 0
    forced: int = 0
    backtracked: int = 0
    suspended: bool = False
    #: of its request: one for all forks
    log: KeptLog = field(init=False)
    #: of its request: one dictionary for all forks, until it ends
    variables: dict[str, bytes] = field(default_factory=dict)
    reason: FinishReason | None = None
    error: AiciError | None = None
    started: float = field(default_factory=time.perf_counter)
    first_token: float = NAN
    ended: float = NAN

    def __post_init__(self) -> None:
        self.log = KeptLog(self.request.max_log_bytes)

    @property
    def new_tokens(self) -> int:
        """Tokens after what is left of the prompt."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def final_score(self) -> float:
        """What beam search compares: the sum of log-probabilities divided by length ** length_penalty."""
        penalty: float = max(1, self.new_tokens) ** self.request.length_penalty
        return self.score / penalty

    def append(self, tokens: list[int], origin: Origin, logprob: float = NAN) -> str:
        """Appends tokens; the text that became readable. `logprob` is that of a single token."""
        self.tokens += tokens
        self.origins += [origin] * len(tokens)
        self.logprobs += [logprob] * len(tokens)
        if logprob == logprob:
            self.score += logprob
        if origin is Origin.PROMPT:
            self.prompt_tokens += len(tokens)
        elif origin is Origin.SAMPLED:
            self.sampled += len(tokens)
        else:
            self.forced += len(tokens)
        if origin is not Origin.PROMPT:
            self.work += len(tokens)
            if self.first_token != self.first_token:
                self.first_token = time.perf_counter()
        return self.trail.append(tokens)

    def backtrack(self, count: int) -> str:
        """Takes back the last `count` tokens, of the prompt if need be; the text that went with them."""
        if count:
            self.score -= sum(value for value in self.logprobs[-count:] if value == value)
            for tokens in (self.tokens, self.origins, self.logprobs):
                del tokens[-count:]
            self.backtracked += count
            self.prompt_tokens = min(self.prompt_tokens, len(self.tokens))
        return self.trail.backtrack(count)

    def print(self, text: str) -> None:
        """Keeps what its controller has printed, as far as there is room."""
        self.log.append(self.id, text)

    def copy_to(self, child: Record) -> None:
        """Has a new sequence begin as a fork of this one."""
        child.parent = self.id
        child.trail = self.trail.copy()
        child.variables = self.variables
        child.log = self.log
        child.tokens, child.origins, child.logprobs = self.tokens[:], self.origins[:], self.logprobs[:]
        for name in _INHERITED:
            setattr(child, name, getattr(self, name))

    def end(self) -> None:
        """Nothing more will happen to it."""
        self.ended = time.perf_counter()
        self.variables = dict(self.variables)

    def result(self) -> GenerationResult:
        """What the user gets. The sequence must have ended."""
        assert self.reason is not None
        return GenerationResult(
            request=self.request_id,
            seq=self.id,
            parent=self.parent,
            text=self.trail.text(self.prompt_tokens),
            tokens=self.tokens,
            origins=self.origins,
            logprobs=self.logprobs,
            prompt_tokens=self.prompt_tokens,
            reason=self.reason,
            error=self.error,
            log=self.log.text(self.id),
            variables=self.variables,
            score=self.final_score if self.request.beams > 1 else None,
            sampled=self.sampled,
            forced=self.forced,
            backtracked=self.backtracked,
            first_token_seconds=self.first_token - self.started,
            seconds=self.ended - self.started,
        )


#: counts and times that a fork begins with
_INHERITED = (
    "prompt_tokens",
    "score",
    "work",
    "sampled",
    "forced",
    "backtracked",
    "started",
    "first_token",
)
