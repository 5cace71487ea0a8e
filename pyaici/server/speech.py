"""What a sequence says, for clients that know text alone: no forks, stop strings, whole characters."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyaici.engines.events import BackTracked, Finished, Started, TokensAppended
from pyaici.engines.request import FinishReason
from pyaici.server.errors import busy, from_aici
from pyaici.server.marks import Marks

if TYPE_CHECKING:
    from pyaici.engines.events import Event
    from pyaici.server.service import Job, Service

#: reasons for which a text is cut off
_CUT = (FinishReason.LENGTH, FinishReason.WORK)


@dataclass(frozen=True, slots=True)
class SaidToken:
    """A token of the answer. `start`: characters of the answer before it. What is not known is None."""

    token: int
    start: int
    logprob: float | None = None
    #: (token, log-probability) of the most likely ones in its place
    top: list[tuple[int, float]] | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What was added to an answer."""

    text: str = ""
    #: characters at the end of what was said before that do not count any more
    retracted: int = 0
    #: tokens that came, also of text that is still held back
    tokens: list[SaidToken] = field(default_factory=list)
    #: "stop" or "length", with the last
    finish: str | None = None
    #: the controller ended the sequence: what it describes is complete
    complete: bool = False
    #: the stop string that ended it, which is no part of the text
    stop: str | None = None


class Speech:
    """Follows the sequence that a request began with."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._marks = Marks(stop)
        self._longest = max(map(len, stop), default=1)
        self._root = -1
        #: as the engine has it, and what of it was said
        self._text = ""
        self._said = ""
        #: so far no stop string begins in front of this place
        self._searched = 0
        #: where each of its tokens starts
        self._starts: list[int] = []
        self._reason: FinishReason | None = None

    @property
    def tokens(self) -> int:
        """How many tokens the answer has by now."""
        return len(self._starts)

    def follow(self, events: Sequence[Event]) -> Said:
        """What a step of the engine adds. Raises ApiError if the sequence failed."""
        tokens: list[SaidToken] = []
        for event in events:
            if isinstance(event, Started) and self._root < 0:
                self._root = event.seq
            if event.seq != self._root:
                continue
            if isinstance(event, TokensAppended):
                tokens += self._append(event)
            elif isinstance(event, BackTracked):
                self._take_back(event, tokens)
            elif isinstance(event, Finished):
                if event.error is not None:
                    raise from_aici(event.error, "controller")
                if event.reason is FinishReason.CANCELLED:  # nobody else cancels what is being read
                    raise busy("the engine has ended before the answer has", 5)
                self._reason = event.reason
        return self._say(tokens)

    def _append(self, event: TokensAppended) -> list[SaidToken]:
        start = len(self._text)
        self._text += event.text
        self._starts += [start] * len(event.tokens)
        unknown = [None] * len(event.tokens)
        values: Sequence[float | None] = event.logprobs or unknown
        tops: Sequence[list[tuple[int, float]] | None] = event.top or unknown
        return [
            SaidToken(token, start, logprob, top)
            for token, logprob, top in zip(event.tokens, values, tops, strict=True)
        ]

    def _take_back(self, event: BackTracked, tokens: list[SaidToken]) -> None:
        self._text = self._text[: max(0, len(self._text) - len(event.text))]
        for _ in range(min(event.count, len(self._starts))):  # a part of the prompt may have gone, too
            self._starts.pop()
            if tokens:
                tokens.pop()
        self._searched = min(self._searched, len(self._text))

    def _say(self, tokens: list[SaidToken]) -> Said:
        end, stop = self._find_stop()
        over = stop is not None or self._reason is not None
        if not over:
            end -= self._marks.held(self._text)
        kept = self._said
        if not self._text.startswith(kept[:end]) or len(kept) > end:
            kept = kept[: _common(kept, self._text[:end])]
        retracted = len(self._said) - len(kept)
        new = self._text[len(kept) : end]
        self._said = kept + new
        if not over:
            return Said(new, retracted, tokens)
        if stop is not None:
            tokens = [token for token in tokens if token.start < end]
        finish = "length" if stop is None and self._reason in _CUT else "stop"
        return Said(new, retracted, tokens, finish, self._reason is FinishReason.STOP, stop)

    def _find_stop(self) -> tuple[int, str | None]:
        """Where the text ends, and the stop string there."""
        first = max(0, self._searched - self._longest + 1)
        found = self._marks.find(self._text[first:])
        if found is not None:
            return first + found[0], found[1]
        self._searched = len(self._text)
        return len(self._text), None


def _common(one: str, other: str) -> int:
    """Length of the common beginning."""
    for at, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return at
    return min(len(one), len(other))


async def speak(service: Service, job: Job, stop: Sequence[str] = ()) -> AsyncGenerator[Said, None]:
    """Runs a job. The first item is empty: the request has been accepted. Raises ApiError."""
    speech = Speech(stop)
    async with service.run(job) as stream:
        yield Said()
        async for events in stream:
            said = speech.follow(events)
            yield said
            if said.finish is not None:
                return
