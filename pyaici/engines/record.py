"""Sequences as events and results report them: tokens, text, origins, log, and how each sequence ended.

All engines change their sequences through an `EventRecorder`, so that records, events and counts agree.
"""

from __future__ import annotations

import codecs
import math
import sys
import time
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import SpaceError, counted
from pyaici.engines.engine import (
    MAX_LOG_BYTES,
    Backtracked,
    Counts,
    Event,
    Finished,
    FinishReason,
    Forked,
    GenerationResult,
    Log,
    Origin,
    PromptCached,
    Request,
    Started,
    Suspended,
    TokensAppended,
    VariablesChanged,
    Written,
)

if TYPE_CHECKING:
    from aicirt.contract.errors import AiciError
    from pyaici.client.calls import Offer
    from pyaici.client.runtime import Runtime


def shared_length(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Returns the length of the common prefix of two token lists or texts."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:  # nearly always, where one text is the other with more
        return high
    # binary search: comparing slices is about a hundred times as fast as a loop
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


_decoder_class = codecs.getincrementaldecoder("utf-8")


class TextTrail:
    """Decodes token bytes as UTF-8 step by step, and can backtrack.

    An incomplete character is held back until its last byte arrives; bytes that belong to no character
    become U+FFFD. Memory: two small entries per token. A token costs the same after any text.
    """

    __slots__ = ("_pending", "_pieces", "_vocabulary")

    def __init__(self, vocabulary: Sequence[bytes]) -> None:
        """`vocabulary`: the bytes of each token; ids beyond it have no text."""
        self._vocabulary = vocabulary
        #: for each token: the text that it made readable, and the bytes held back after it
        self._pieces: list[str] = []
        self._pending: list[bytes] = []

    def append(self, tokens: Iterable[int], hidden: Collection[int] = ()) -> str:
        """Appends tokens and returns the text that became readable. `hidden`: tokens without text."""
        before, vocabulary = len(self._pieces), self._vocabulary
        for token in tokens:
            waiting = self._pending[-1] if self._pending else b""
            if token < len(vocabulary) and token not in hidden:
                waiting += vocabulary[token]
            text, waiting = _decode(waiting)
            self._pieces.append(text)
            self._pending.append(waiting)
        return "".join(self._pieces[before:])

    def backtrack(self, count: int) -> str:
        """Removes the last `count` tokens and returns the text that was removed with them."""
        if count == 0:
            return ""
        removed = "".join(self._pieces[-count:])
        del self._pieces[-count:], self._pending[-count:]
        return removed

    def text(self, first: int = 0) -> str:
        """Returns the text of the tokens from index `first` on; an incomplete end becomes U+FFFD."""
        waiting = self._pending[-1] if len(self._pending) > first else b""
        return "".join(self._pieces[first:]) + waiting.decode("utf-8", "replace")

    def empty(self) -> TextTrail:
        """Returns a trail of the same vocabulary without tokens."""
        return TextTrail(self._vocabulary)

    def copy(self) -> TextTrail:
        """Returns an independent copy."""
        twin = self.empty()
        twin._pieces = self._pieces.copy()
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

    def texts(self) -> dict[int, str]:
        """Returns the kept output by sequence, each after a line with the number of dropped characters."""
        pieces: defaultdict[int, list[str]] = defaultdict(list)
        for seq, dropped in self._dropped.items():
            pieces[seq].append(f"... dropped {counted(dropped, 'character')} of earlier output\n")
        for seq, text in self._pieces:
            pieces[seq].append(text)
        return {seq: "".join(texts) for seq, texts in pieces.items()}


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
    #: the tokens that the first sequence of its request began with
    prompt: list[int] = field(default_factory=list)
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
    #: the variables of its request, one dictionary shared by all forks
    variables: dict[str, bytes] = field(default_factory=dict)
    finish_reason: FinishReason | None = None
    error: AiciError | None = None
    started: float = field(default_factory=time.perf_counter)
    first_token: float = NAN

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

    def append(self, tokens: list[int], origin: Origin, logprobs: Sequence[float] | None = None) -> str:
        """Appends tokens and returns the text that became readable. `logprobs`: of each; None = unknown."""
        self.tokens += tokens
        self.origins += [origin] * len(tokens)
        if logprobs is None:
            self.logprobs += [NAN] * len(tokens)
        else:
            self.logprobs += logprobs
            self.score += sum(value for value in logprobs if value == value)
        if origin is Origin.PROMPT:
            self.prompt = tokens
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

    def copy_to(self, child: Record, *, tokens: bool = True) -> None:
        """Makes `child`, a new sequence, a fork of this one; without its `tokens` if it must end at once."""
        child.parent = self.id
        child.variables = self.variables
        child.log = self.log
        for name in _INHERITED:
            setattr(child, name, getattr(self, name))
        if not tokens:
            child.trail = self.trail.empty()
            return
        child.trail = self.trail.copy()
        child.tokens, child.origins, child.logprobs = self.tokens[:], self.origins[:], self.logprobs[:]

    def result(self) -> GenerationResult:
        """Returns the result of the sequence, which has ended, without its log."""
        assert self.finish_reason is not None
        kept = self.prompt_tokens
        return GenerationResult(
            request=self.request_id,
            seq=self.id,
            parent=self.parent,
            text=self.trail.text(kept),
            prompt=self.prompt,
            prompt_tokens=kept,
            written=Written(
                array("i", self.tokens[kept:]),
                bytes(origin is Origin.FORCED for origin in self.origins[kept:]),
                array("d", self.logprobs[kept:]),
            ),
            finish_reason=self.finish_reason,
            error=self.error,
            log="",
            variables=self.variables,
            score=self.final_score if self.request.beams > 1 else None,
            sampled=self.sampled,
            forced=self.forced,
            backtracked=self.backtracked,
            first_token_seconds=self.first_token - self.started,
            seconds=time.perf_counter() - self.started,
        )


#: most memory for the results of a request's ended sequences, and for those of all requests of an owner
MAX_RESULT_BYTES = 32 << 20
MAX_OWNER_RESULT_BYTES = 256 << 20


@dataclass(slots=True)
class _Ended:
    """The results of a request's ended sequences, and what they take."""

    owner: str | None
    log: KeptLog
    results: list[GenerationResult] = field(default_factory=list)
    nbytes: int = 0


class EndedSequences:
    """The results of ended sequences until they are fetched. A controller may fork for ever."""

    def __init__(self) -> None:
        #: by request
        self._kept: dict[int, _Ended] = {}
        self._owners: Counter[str] = Counter()
        #: requests with too many bytes
        self._over: dict[int, SpaceError] = {}

    def add(self, record: Record) -> None:
        """Adds the result of a sequence that has ended."""
        number, result, owner = record.request_id, record.result(), record.request.owner
        kept = self._kept.setdefault(number, _Ended(owner, record.log))
        kept.results.append(result)
        kept.nbytes += result.nbytes
        if kept.nbytes > MAX_RESULT_BYTES:
            self._over[number] = _too_large("this request", MAX_RESULT_BYTES)
        if owner is not None:
            self._owners[owner] += result.nbytes
            if self._owners[owner] > MAX_OWNER_RESULT_BYTES:
                self._over[number] = _too_large("your requests", MAX_OWNER_RESULT_BYTES)

    def too_large(self) -> dict[int, SpaceError]:
        """Returns the requests whose live sequences must end for the memory of the ended ones, each once."""
        found, self._over = self._over, {}
        return found

    def pop_results(self, number: int) -> list[GenerationResult]:
        """Returns the results of a request that has ended, by sequence number, and forgets it."""
        kept = self._kept.pop(number)
        self._over.pop(number, None)
        if kept.owner is not None:
            self._owners[kept.owner] -= kept.nbytes
            self._owners += Counter()  # drops owners with none
        logs = kept.log.texts()
        for result in kept.results:
            result.log = logs.get(result.seq, "")
        return sorted(kept.results, key=lambda result: result.seq)


def _too_large(whose: str, most: int) -> SpaceError:
    return SpaceError(
        f"the ended forks of {whose} have more than {most >> 20} MiB of text and tokens: fork less often, or "
        "lower max_tokens"
    )


class Offers:
    """Offers of the functions and names of requests, each until its request has ended."""

    def __init__(self, runtime: Runtime | None) -> None:
        self._runtime = runtime
        self._open: dict[int, Offer] = {}

    def open_for(self, number: int, request: Request) -> Request:
        """Returns a request with the token of an offer in the place of its functions and its name, if any.

        Raises ValueError if there is no runtime, and as `Answerer.offer`.
        """
        if isinstance(request.calls, str) and not request.name:
            return request
        if self._runtime is None:
            raise ValueError(
                "functions that answer calls, and names of requests, need a runtime: make the engine with "
                "one (on vLLM: with a connection to the aicirt of vLLM's engine, which AICI_SOCKET names)"
            )
        functions = {} if isinstance(request.calls, str) else request.calls
        offer = self._runtime.answerer.offer_functions(functions, owner=request.owner, name=request.name)
        self._open[number] = offer
        return replace(request, calls=offer.token, name="")

    def withdraw(self, number: int) -> None:
        """Withdraws the offer of a request that has ended. Idempotent."""
        if (offer := self._open.pop(number, None)) is not None:
            offer.close()


class EventRecorder:
    """Records what happens to an engine's sequences: in their records, in events, and in counts."""

    def __init__(self, counts: Counts) -> None:
        """`counts`: the engine's, to which the recorder adds tokens and forks."""
        self.ended = EndedSequences()
        self._counts = counts
        self._events: list[Event] = []

    def drain(self) -> list[Event]:
        """Returns the events since the last call."""
        events, self._events = self._events, []
        return events

    def start_sequence(self, record: Record, prompt: list[int]) -> None:
        """Gives the first sequence of a request its prompt."""
        text = record.append(prompt, Origin.PROMPT)
        self._events.append(Started(record.request_id, record.id, prompt.copy(), text))

    def reuse(self, record: Record, count: int) -> None:
        """Records that the cache has the first `count` tokens of the prompt."""
        if count:
            self._events.append(PromptCached(record.request_id, record.id, count))

    def fork(self, parent: Record, children: Sequence[Record], *, by_engine: bool) -> None:
        """Records that a sequence was forked into itself and these copies."""
        self._counts.forks += len(children)
        ids = [child.id for child in children]
        self._events.append(Forked(parent.request_id, parent.id, ids, by_engine))

    def append_tokens(
        self,
        record: Record,
        tokens: list[int],
        origin: Origin,
        logprobs: Sequence[float] | None = None,
        top: Sequence[list[tuple[int, float]]] | None = None,
        allowed: int | None = None,
    ) -> None:
        """Appends tokens. The other values: see `TokensAppended`, which has those that were requested."""
        text = record.append(tokens, origin, logprobs)
        if origin is Origin.SAMPLED:
            self._counts.sampled += len(tokens)
        else:
            self._counts.forced += len(tokens)
        if not tokens:
            return
        request, known, best = record.request, None, None
        if request.logprobs and logprobs is not None and not any(map(math.isnan, logprobs)):
            known = list(logprobs)
            if request.top_logprobs and top is not None:
                best = [tokens[: request.top_logprobs] for tokens in top]
        self._events.append(
            TokensAppended(record.request_id, record.id, tokens, text, origin, known, best, allowed)
        )

    def backtrack(self, record: Record, count: int) -> None:
        """Removes the last `count` tokens."""
        if count:
            self._counts.backtracked += count
            self._events.append(Backtracked(record.request_id, record.id, count, record.backtrack(count)))

    def suspend(self, record: Record) -> None:
        """Records that a sequence skips steps from now on."""
        self._events.append(Suspended(record.request_id, record.id))

    def print(self, record: Record, text: str) -> None:
        """Adds the controller's output to the log, which drops its oldest pieces when it is full."""
        record.log.append(record.id, text)
        self._events.append(Log(record.request_id, record.id, text))

    def write_variables(self, record: Record, values: Mapping[str, bytes]) -> None:
        """Records variables that controllers of the request wrote; names as in `VariablesChanged`."""
        record.variables.update(values)
        self._events.append(VariablesChanged(record.request_id, record.id, dict(values)))

    def end_sequence(self, record: Record) -> None:
        """Records the end of a sequence that has a reason, and keeps its result."""
        assert record.finish_reason is not None
        self.ended.add(record)
        self._events.append(Finished(record.request_id, record.id, record.finish_reason, record.error))


#: counts and times that a fork inherits
_INHERITED = (
    "prompt",
    "prompt_tokens",
    "score",
    "work",
    "sampled",
    "forced",
    "backtracked",
    "started",
    "first_token",
)
