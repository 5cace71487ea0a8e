"""The state of a sequence that results report: tokens, text, origins, log, and how the sequence ended."""

from __future__ import annotations

import codecs
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyaici.engines.engine import MAX_LOG_BYTES, FinishReason, GenerationResult, Origin, Request

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError


_decoder_class = codecs.getincrementaldecoder("utf-8")


class TextTrail:
    """Decodes token bytes as UTF-8 step by step, and can backtrack.

    An incomplete character is held back until its last byte arrives; bytes that belong to no character
    become U+FFFD. Memory: two small entries per token.
    """

    __slots__ = ("_ends", "_pending", "_token_bytes", "_visible")

    def __init__(self, token_bytes: Callable[[int], bytes]) -> None:
        self._token_bytes = token_bytes
        self._visible = ""
        #: for each token: the length of the visible text after it, and the bytes held back after it
        self._ends: list[int] = []
        self._pending: list[bytes] = []

    def append(self, tokens: Iterable[int], hidden: Collection[int] = ()) -> str:
        """Appends tokens and returns the text that became readable. `hidden`: tokens without text."""
        before = len(self._visible)
        for token in tokens:
            waiting = self._pending[-1] if self._pending else b""
            text, waiting = _decode(waiting + (b"" if token in hidden else self._token_bytes(token)))
            self._visible += text
            self._ends.append(len(self._visible))
            self._pending.append(waiting)
        return self._visible[before:]

    def backtrack(self, count: int) -> str:
        """Removes the last `count` tokens and returns the text that was removed with them."""
        if count == 0:
            return ""
        del self._ends[-count:], self._pending[-count:]
        end = self._ends[-1] if self._ends else 0
        removed, self._visible = self._visible[end:], self._visible[:end]
        return removed

    def text(self, first: int = 0) -> str:
        """Returns the text of the tokens from index `first` on; an incomplete end becomes U+FFFD."""
        start = self._ends[first - 1] if first else 0
        waiting = self._pending[-1] if len(self._pending) > first else b""
        return self._visible[start:] + waiting.decode("utf-8", "replace")

    def copy(self) -> TextTrail:
        """Returns an independent copy."""
        twin = TextTrail(self._token_bytes)
        twin._visible = self._visible
        twin._ends = self._ends.copy()
        twin._pending = self._pending.copy()
        return twin


def _decode(data: bytes) -> tuple[str, bytes]:
    """Returns (text, bytes of an incomplete last character)."""
    decoder = _decoder_class("replace")
    text = decoder.decode(data)
    return text, decoder.getstate()[0]


#: memory of a piece of a log besides its text; measured and rounded up
_PIECE_BYTES = 80


class KeptLog:
    """A log of bounded size, shared by several sequences. The oldest pieces of any sequence go first."""

    def __init__(self, max_bytes: int = MAX_LOG_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: deque[tuple[int, str]] = deque()
        self._bytes = 0
        #: number of characters dropped, by sequence
        self._dropped: Counter[int] = Counter()

    def append(self, seq: int, text: str) -> None:
        """Adds the output of sequence `seq`."""
        self._pieces.append((seq, text))
        self._bytes += _size(text)
        while self._bytes > self._max_bytes and self._pieces:
            oldest, gone = self._pieces.popleft()
            self._bytes -= _size(gone)
            self._dropped[oldest] += len(gone)

    def text(self, seq: int) -> str:
        """Returns the kept output of sequence `seq`, after a line with the number of dropped characters."""
        kept = "".join(text for number, text in self._pieces if number == seq)
        dropped = self._dropped[seq]
        return f"... {dropped} characters of earlier output were dropped\n{kept}" if dropped else kept


def _size(text: str) -> int:
    return sys.getsizeof(text) + _PIECE_BYTES


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
    #: number of tokens of the prompt that are left
    prompt_tokens: int = 0
    #: sum of the known log-probabilities of its tokens
    score: float = 0.0
    #: tokens sampled or appended, including those removed later; a splice that adds none counts as one
    work: int = 0
    sampled: int = 0
    forced: int = 0
    backtracked: int = 0
    suspended: bool = False
    #: the log of its request, shared by all forks
    log: KeptLog = field(init=False)
    #: the variables of its request, one dictionary shared by all forks; a copy once the sequence has ended
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
        """The number of tokens after the remaining prompt."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def final_score(self) -> float:
        """The beam-search score: the sum of log-probabilities divided by length ** length_penalty."""
        penalty: float = max(1, self.new_tokens) ** self.request.length_penalty
        return self.score / penalty

    def append(self, tokens: list[int], origin: Origin, logprob: float = NAN) -> str:
        """Appends tokens and returns the text that became readable. `logprob` is that of a single token."""
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
        hidden = self.request.sampling.stop_token_ids if origin is not Origin.PROMPT else ()
        return self.trail.append(tokens, hidden)

    def backtrack(self, count: int) -> str:
        """Removes the last `count` tokens, the prompt's included, and returns the text removed with them."""
        if count:
            self.score -= sum(value for value in self.logprobs[-count:] if value == value)
            for tokens in (self.tokens, self.origins, self.logprobs):
                del tokens[-count:]
            self.backtracked += count
            self.prompt_tokens = min(self.prompt_tokens, len(self.tokens))
        return self.trail.backtrack(count)

    def print(self, text: str) -> None:
        """Adds the controller's output to the log, which drops its oldest pieces when it is full."""
        self.log.append(self.id, text)

    def copy_to(self, child: Record) -> None:
        """Makes `child`, a new sequence, a fork of this one."""
        child.parent = self.id
        child.trail = self.trail.copy()
        child.variables = self.variables
        child.log = self.log
        child.tokens, child.origins, child.logprobs = self.tokens[:], self.origins[:], self.logprobs[:]
        for name in _INHERITED:
            setattr(child, name, getattr(self, name))

    def end(self) -> None:
        """Records the time of the end and freezes the variables."""
        self.ended = time.perf_counter()
        self.variables = dict(self.variables)

    def result(self) -> GenerationResult:
        """Returns the result for the user. The sequence must have ended."""
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


#: counts and times that a fork inherits
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
