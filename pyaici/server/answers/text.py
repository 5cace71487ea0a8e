"""Text of one sequence for clients without forks: whole characters, stop strings, retractions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyaici.engines.engine import (
    Backtracked,
    Finished,
    FinishReason,
    Log,
    PromptCached,
    Started,
    TokensAppended,
)
from pyaici.engines.record import TextTrail, shared_length
from pyaici.server.http.errors import busy, from_aici

if TYPE_CHECKING:
    from pyaici.engines.engine import Event
    from pyaici.server.answers.calls import ToolCalled, ToolEnded
    from pyaici.server.answers.reader import Event as AnswerEvent
    from pyaici.server.answers.reader import Reader
    from pyaici.server.answers.stops import StopFinder
    from pyaici.server.service import Job, Service


#: finish reasons that cut a text off
_CUT = (FinishReason.LENGTH, FinishReason.WORK)
#: characters of a controller's output that an answer reports
_MAX_LOGS = 1 << 16
#: tokens at the end of a prompt that may hold the beginning of a character: several, since some have no bytes
_TAIL = 16


@dataclass(frozen=True, slots=True)
class TextToken:
    """A token of the answer. `start`: characters of the answer before it. Unknown values are None."""

    token: int
    start: int
    logprob: float | None = None
    #: (token, log-probability) of the most likely tokens at its place
    top: list[tuple[int, float]] | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The change of an answer since the previous delta."""

    text: str = ""
    #: characters at the end of the text sent before that are no longer valid
    backtrack: int = 0
    #: what the reader has found since the previous delta; if it has read the whole text again, all of that
    events: list[AnswerEvent] = field(default_factory=list)
    reread: bool = False
    #: tokens whose text has begun to be sent; a token without text comes with the next token that has text
    tokens: list[TextToken] = field(default_factory=list)
    #: tokens at the end of those sent before that are no longer valid
    backtrack_tokens: int = 0
    #: Change in the number of tokens of the answer; negative after backtracking. Counts tokens whose text is
    #: held back, and those of a stop string.
    grown: int = 0
    #: tokens of the prompt that the engine had in its cache
    cached: int = 0
    #: "stop" or "length" in the last delta
    finish: str | None = None
    #: the stop string that ended the answer, which is no part of the text
    stop: str | None = None
    #: what the controller printed, such as which parts of a schema it does not enforce
    logs: str = ""
    #: calls of tools of MCP servers that have begun or ended
    tools: list[ToolCalled | ToolEnded] = field(default_factory=list)
    #: tokens of messages that were appended since the previous delta: results of tools, for the model to read
    read: int = 0
    #: another answer begins: what comes before it is not backtrack
    begins: bool = False


class AnswerText:
    """Follows the text of the sequence that a request began with."""

    def __init__(
        self,
        vocabulary: Sequence[bytes],
        reader: Reader | StopFinder,
        param: str | None = None,
        root: int = -1,
    ) -> None:
        """Starts with an empty answer.

        `root`: the engine's number of the sequence; -1: that of the first one that starts.

        `vocabulary`: the bytes of each token. `reader`: reads the text, and finds its end. `param`: the
        request's field that names the controller, for errors.
        """
        self._param = param
        self._reader = reader
        #: text of this step that the reader does not know, and how much it knows that is no longer valid
        self._new, self._gone = "", 0
        #: finds which part of the text belongs to each token
        self._trail = TextTrail(vocabulary)
        self._root = root
        #: the text as the engine has it, and the part that was sent
        self._text = ""
        self._sent_text = ""
        self._tokens: list[TextToken] = []
        #: number of tokens sent, and how many of these are still valid
        self._sent_tokens = self._valid_tokens = 0
        self._counted = 0
        self._cached = 0
        self._reason: FinishReason | None = None
        #: output of the controller in this step, and how much of its output may still be reported
        self._logs, self._room_for_logs = "", _MAX_LOGS

    def follow(self, events: Sequence[Event]) -> TextDelta:
        """Returns what a step of the engine changes. Raises ApiError if the sequence failed."""
        self._logs = ""
        for event in events:
            if isinstance(event, Started) and self._root < 0:
                self._root = event.seq
                self._trail.append(event.tokens[-_TAIL:])
            if event.seq != self._root:
                continue
            if isinstance(event, TokensAppended):
                self._append(event)
            elif isinstance(event, Backtracked):
                self._take_back(event)
            elif isinstance(event, PromptCached):
                self._cached = event.count
            elif isinstance(event, Log):
                self._logs += event.text[: self._room_for_logs]
                self._room_for_logs -= min(len(event.text), self._room_for_logs)
            elif isinstance(event, Finished):
                if event.error is not None:
                    raise from_aici(event.error, self._param)
                if event.finish_reason is FinishReason.CANCELLED:  # here only the engine's end cancels
                    raise busy("the engine stopped before the answer was complete: try again later", 5)
                self._reason = event.finish_reason
        return self._delta()

    def end(self) -> TextDelta:
        """Returns what remains when the answer ends, although its sequence goes on."""
        self._reason, self._logs = FinishReason.STOP, ""
        return replace(self._delta(), finish=None)

    def _append(self, event: TokensAppended) -> None:
        unknown = [None] * len(event.tokens)
        values: Sequence[float | None] = event.logprobs or unknown
        tops: Sequence[list[tuple[int, float]] | None] = event.top_logprobs or unknown
        start = len(self._text)
        for token, logprob, top in zip(event.tokens, values, tops, strict=True):
            self._tokens.append(TextToken(token, start, logprob, top))
            start += len(self._trail.append([token]))
        self._text += event.text
        self._new += event.text

    def _take_back(self, event: Backtracked) -> None:
        """Removes backtracked tokens, which may include a part of the prompt."""
        count = min(len(event.text), len(self._text))
        self._text = self._text[: len(self._text) - count]
        kept = max(0, len(self._new) - count)
        self._gone += count - (len(self._new) - kept)
        self._new = self._new[:kept]
        self._trail.backtrack(event.count)
        del self._tokens[max(0, len(self._tokens) - event.count) :]
        self._valid_tokens = min(self._valid_tokens, len(self._tokens))

    def _delta(self) -> TextDelta:
        reader, reread = self._reader, self._gone > 0
        events = (reader.cut(self._gone) if reread else []) + reader.feed(self._new)
        self._new, self._gone = "", 0
        if self._reason is not None:
            events += reader.end()
        over = reader.over or self._reason is not None
        # the rest may begin in the text of an earlier sequence
        end, stop = max(0, len(self._text) - reader.rest), reader.stop
        kept = self._sent_text[: shared_length(self._sent_text, self._text[:end])]
        backtrack, new = len(self._sent_text) - len(kept), self._text[len(kept) : end]
        self._sent_text = kept + new
        # a token whose text is in both parts belongs to the first
        ready = self._begun(end) if stop is not None or not over else len(self._tokens)
        left = min(self._valid_tokens, ready)
        tokens, backtrack_tokens = self._tokens[left:ready], self._sent_tokens - left
        self._sent_tokens = self._valid_tokens = ready
        counted = len(self._tokens) if stop is None else self._begun(end + len(stop.mark))
        grown, self._counted = counted - self._counted, counted
        finish = None
        if over:
            finish = "length" if not reader.over and self._reason in _CUT else "stop"
        cached, self._cached = self._cached, 0
        return TextDelta(
            new,
            backtrack,
            events,
            reread,
            tokens,
            backtrack_tokens,
            grown,
            cached,
            finish,
            stop=stop.mark if stop else None,
            logs=self._logs,
        )

    def _begun(self, end: int) -> int:
        """Returns how many tokens begin before this place."""
        return bisect_left(self._tokens, end, key=lambda token: token.start)


async def answer_deltas(
    service: Service,
    job: Job,
    reader: Reader | StopFinder,
    *,
    in_turn: bool = False,
) -> AsyncGenerator[TextDelta, None]:
    """Runs a job and yields its deltas. Raises ApiError.

    The first delta is empty: it reports that the request has been accepted. `in_turn`: see `Service.run`.
    """
    param = None if job.controller is None else job.controller.param
    answer = AnswerText(service.model.vocabulary.tokens, reader, param)
    async with service.run(job, in_turn=in_turn) as stream:
        yield TextDelta()
        async for events in stream:
            delta = answer.follow(events)
            yield delta
            if delta.finish is not None:
                return
