"""Splits an answer into reasoning, text and tool calls while it is generated, and finds its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from pyaici.server.answers.calls import Call, CallReader, Cursor, NoCall
from pyaici.server.answers.plan import CHANNEL, END, END_OF_THINKING, MESSAGE, START, THINK, AnswerPlan
from pyaici.server.answers.stops import MarkerScanner, Stop

#: headers with which an answer may begin: templates write the recipient in front of the channel
_HEADS = (CHANNEL, START, "to=")
_NAME = re.compile(r"to=(?:functions\.)?([^\s<]+)")


@dataclass(frozen=True, slots=True)
class Text:
    """More text of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """More text of the reasoning before the answer."""

    text: str


Event = Text | Reasoning | Call | Stop


class Reader:
    """Reads an answer. The result does not depend on how the text is cut into pieces."""

    def __init__(self, plan: AnswerPlan) -> None:
        self.renew(plan)

    def renew(self, plan: AnswerPlan) -> None:
        """Begins to read an answer with this plan, perhaps after another one."""
        self._plan = plan
        self._stops = MarkerScanner(plan.stop)
        self._raw = ""
        self._restart()

    def _restart(self) -> None:
        self._state = "text"
        #: the end of the text so far, which has not become events
        self._text = ""
        #: the stop string that has ended the answer
        self.stop: Stop | None = None
        #: number of calls so far
        self.calls = 0

    @property
    def over(self) -> bool:
        """Whether the answer is complete: what follows is ignored."""
        return self._state == "over"

    @property
    def reasons(self) -> bool:
        """Whether the answer is in its reasoning."""
        return self._state == "reasoning"

    @property
    def rest(self) -> int:
        """How many characters at the end of the text are no part of the answer, or perhaps not.

        They may begin a stop string, or follow one.
        """
        undecided = bool(self._stops) and self._state not in ("reasoning", "calls", "whole")
        return len(self._text) if undecided or self.over else 0

    def feed(self, text: str) -> list[Event]:
        """Returns the events that more text adds."""
        self._raw += text
        self._text += text
        return list(self._read(last=False))

    def end(self) -> list[Event]:
        """Returns the events of text that was held back, at the end of the answer."""
        return list(self._read(last=True))

    def cut(self, count: int) -> list[Event]:
        """Removes characters at the end. Returns the events of the whole text that is left."""
        raw = self._raw[: max(0, len(self._raw) - count)]
        self._raw = ""
        self._restart()
        return self.feed(raw)

    def _read(self, *, last: bool) -> Iterator[Event]:
        state = None
        while state != self._state:  # a marker has changed it
            state = self._state
            if state != "over":
                yield from getattr(self, f"_{state}_events")(last)

    def _stopped(self, at: int, mark: str) -> Iterator[Event]:
        yield from self._texts(at)
        self._state, self.stop = "over", Stop(mark)
        yield self.stop

    def _texts(self, end: int) -> Iterator[Event]:
        """Yields the text up to `end`, and forgets it."""
        taken, self._text = self._text[:end], self._text[end:]
        if taken:
            yield Text(taken)


class AnswerReader(Reader):
    """Reads an answer that may have reasoning and calls.

    Blanks around reasoning and calls are dropped. An invalid call stays text: grammars exclude it, but an
    answer that is cut off may have one. No stop string counts in reasoning and calls, in the marks around
    them, and in the blanks after them.
    """

    def renew(self, plan: AnswerPlan) -> None:
        """See `Reader.renew`."""
        self._form = plan.form
        #: marks that begin calls, and reasoning after the beginning
        self._begins = [
            *([plan.form.begin] if plan.form and plan.form.begin else []),
            *([THINK] if plan.reasons_again else []),
        ]
        self._marks = MarkerScanner(self._begins)
        self._end_of_reasoning = MarkerScanner(
            [plan.start.reasoning.end if plan.start.reasoning else END_OF_THINKING]
        )
        super().renew(plan)

    def _restart(self) -> None:
        super()._restart()
        self._calls: CallReader | None = None
        #: calls of an answer without marks, until it turns out to have nothing else; blanks before calls
        self._found: list[Event] = []
        self._gap = ""
        #: whether marks may come, and the place before which they have turned out to begin nothing
        self._looks, self._barren = bool(self._begins), 0
        #: only blanks have come since reasoning or calls
        self._bare = False
        start = self._plan.start
        self._state = "reasoning" if start.open else "first" if start.reasoning else self._answer_state()

    def _answer_state(self) -> str:
        """Returns the state in which the answer itself begins."""
        if self._form is not None and not self._form.begin:
            return "whole"
        return "either" if self._plan.exclusive and self._looks else "text"

    def _first_events(self, last: bool) -> Iterator[Event]:
        """Handles the beginning of an answer that may have reasoning."""
        assert self._plan.start.reasoning
        begin, bare = self._plan.start.reasoning.begin, self._text.lstrip()
        if bare.startswith(begin):
            self._text, self._state = bare[len(begin) :], "reasoning"
        elif last or not begin.startswith(bare):
            self._state = self._answer_state()
        yield from ()

    def _reasoning_events(self, last: bool) -> Iterator[Event]:
        found = self._end_of_reasoning.find(self._text)
        if found is not None:
            thought, self._text = self._text[: found[0]].rstrip(), self._text[found[0] + len(found[1]) :]
            self._state, self._bare = self._answer_state(), True
        else:
            end = len(self._text)
            if not last:
                end = len(self._text[: end - self._end_of_reasoning.held(self._text)].rstrip())
            thought, self._text = self._text[:end], self._text[end:]
        if thought:
            yield Reasoning(thought)

    def _either_events(self, last: bool) -> Iterator[Event]:
        """Handles the beginning of an answer that is either calls or a text, which then has no marks."""
        bare = self._text.lstrip()
        begun = any(bare.startswith(mark) for mark in self._begins)
        if begun or last or not any(mark.startswith(bare) for mark in self._begins):
            self._looks, self._state = begun, "text"
        yield from ()

    def _whole_events(self, last: bool) -> Iterator[Event]:
        """Handles an answer that is calls or text as a whole: its first character decides."""
        assert self._form is not None
        if self._calls is None:
            bare = self._text.lstrip()
            if not bare and not last:
                return
            if not bare.startswith(self._form.first):
                self._state, self._form = "text", None
                return
            self._calls = self._new_calls()
        piece, self._text = self._text, ""
        try:
            self._found += self._calls.feed(piece, last=last)
            if not last:
                return
            if self._calls.text[self._calls.at :].strip():
                raise NoCall
        except NoCall:
            self._text, self._state, self._form = self._calls.text, "text", None
            return
        self.calls = len(self._found)
        yield from self._found
        self._state, self._found = "over", []

    def _text_events(self, last: bool) -> Iterator[Event]:
        blanks = len(self._text) - len(self._text.lstrip()) if self._bare else 0
        if self._bare and blanks == len(self._text) and not last:
            return
        mark = self._find_mark()
        stop = self._stops.find(self._text, blanks)
        if stop is not None and (mark is None or stop[0] + len(stop[1]) < mark[0] + len(mark[1])):
            begin, end = self._mark_around(*stop) or (0, 0)
            if end <= stop[0] or (last and end > len(self._text)):
                yield from self._stopped(*stop)
            elif mark is None:  # the following text decides whether it is a stop string
                yield from self._texts(len(self._text[:begin].rstrip()))
            else:
                yield from self._marked(*mark)
        elif mark is not None:
            yield from self._marked(*mark)
        elif last:
            yield from self._texts(len(self._text))
        else:
            held = self._marks.held(self._text) if self._looks else 0
            end = len(self._text) - max(held, self._stops.held(self._text))
            # blanks before calls are dropped
            yield from self._texts(len(self._text[:end].rstrip()) if self._looks else end)

    def _find_mark(self) -> tuple[int, str] | None:
        """Returns the place and the text of the next mark that begins calls or reasoning."""
        if not self._looks:
            return None
        found = self._marks.find(self._text[self._barren :])
        return found and (found[0] + self._barren, found[1])

    def _mark_around(self, at: int, stop: str) -> tuple[int, int] | None:
        """Returns where a mark begins and ends that a stop string may be a piece of; None if it is of none.

        The mark may end after the end of the text.
        """
        for mark in self._begins if self._looks else ():
            for begin in range(max(self._barren, at + len(stop) - len(mark)), at + 1):
                if mark.startswith(self._text[begin : begin + len(mark)]):
                    return begin, begin + len(mark)
        return None

    def _marked(self, at: int, mark: str) -> Iterator[Event]:
        """Handles a mark that begins calls or reasoning."""
        end = len(self._text[:at].rstrip())
        gap, rest = self._text[end:at], self._text[at + len(mark) :]
        yield from self._texts(end)
        self._text = rest
        if self._form is None or mark != self._form.begin:
            self._state = "reasoning"
            return
        self._state, self._calls = "calls", self._new_calls()
        self._gap = "" if self._bare else gap

    def _new_calls(self) -> CallReader:
        assert self._form is not None
        names = self._plan.names if self._plan.exclusive else None
        return CallReader(partial(self._form.read, checked=self._plan.checked), names)

    def _calls_events(self, last: bool) -> Iterator[Event]:
        calls, form = self._calls, self._form
        assert calls and form
        piece, self._text = self._text, ""
        try:
            for call in calls.feed(piece, last=last):
                self.calls += 1
                yield call
        except NoCall:
            # what has been read stays text, and is not read as a call again
            failed = calls.text[calls.done : calls.at]
            if not calls.count:
                failed = f"{self._gap}{form.begin}{failed}"
            self._text, self._barren = failed + calls.text[calls.at :], len(failed)
            self._looks = self._looks and not last and not self._plan.exclusive
            self._state, self._bare = "text", self._bare or bool(calls.count)
            return
        if calls.over:
            self._text, self._bare = calls.text[calls.at :], True
            self._state = "over" if form.final else "text"

    def _texts(self, end: int) -> Iterator[Event]:
        self._barren = max(0, self._barren - end)
        if self._bare:
            taken = self._text[:end].lstrip()
            self._bare = not taken
            self._text = taken + self._text[end:]
            end = len(taken)
        yield from super()._texts(end)


class ChannelReader(Reader):
    """Reads an answer in channels. The result does not depend on how the text is cut into pieces.

    The channel `analysis` is reasoning, all others are text; messages of the same kind are one paragraph
    each. A message to a function is a call. Headers are no part of the answer, and stop strings count only in
    text.
    """

    def renew(self, plan: AnswerPlan) -> None:
        """See `Reader.renew`. `plan.start.open`: the prompt has the header of the first message."""
        self._ends = MarkerScanner([END, START])
        super().renew(plan)

    def _restart(self) -> None:
        super()._restart()
        self._state = "text" if self._plan.start.open else "first"
        #: the function that the message calls, and its arguments while they come
        self._name, self._cursor = "", Cursor()
        #: kinds that have had text, and whether the message is a further one of its kind without text so far
        self._kinds: set[type[Text | Reasoning]] = set()
        self._further = False

    def _first_events(self, last: bool) -> Iterator[Event]:
        """Handles the beginning: an answer without a header is text."""
        bare = self._text.lstrip()
        if any(bare.startswith(head) for head in _HEADS):
            self._state = "header"
        elif last or not any(head.startswith(bare) for head in _HEADS):
            self._state = "text"
        yield from ()

    def _header_events(self, last: bool) -> Iterator[Event]:
        head, mark, rest = self._text.partition(MESSAGE)
        if mark or last:
            self._text = rest
        if not mark:
            return
        name = _NAME.search(head)
        if name is not None and self._plan.form is not None:
            self._name, self._cursor = name[1], Cursor()
            self._arguments = self._cursor.json()
            self._state = "calls"
            return
        self._state = "reasoning" if f"{CHANNEL}analysis" in head else "text"
        self._further = self._kind in self._kinds
        yield from ()

    @property
    def _kind(self) -> type[Text | Reasoning]:
        return Reasoning if self._state == "reasoning" else Text

    def _reasoning_events(self, last: bool) -> Iterator[Event]:
        end = self._ends.find(self._text)
        if end is not None:
            yield from self._texts(end[0])
            self._text, self._state = self._text[len(end[1]) :], "header"
        else:
            yield from self._texts(len(self._text) - (0 if last else self._ends.held(self._text)))

    def _text_events(self, last: bool) -> Iterator[Event]:
        end, stop = self._ends.find(self._text), self._stops.find(self._text)
        if stop is not None and (end is None or stop[0] + len(stop[1]) < end[0] + len(end[1])):
            yield from self._stopped(*stop)
        elif end is not None or last:
            yield from self._reasoning_events(last)
        else:
            held = max(self._ends.held(self._text), self._stops.held(self._text))
            yield from self._texts(len(self._text) - held)

    def _texts(self, end: int) -> Iterator[Event]:
        taken, self._text = self._text[:end], self._text[end:]
        if taken:
            gap = "\n\n" if self._further else ""
            self._further = False
            self._kinds.add(self._kind)
            yield self._kind(gap + taken)

    def _calls_events(self, last: bool) -> Iterator[Event]:
        """Handles the arguments of a call; a further message may follow."""
        cursor, form = self._cursor, self._plan.form
        assert form is not None
        cursor.text += self._text
        cursor.last, self._text = last, ""
        try:
            next(self._arguments)
        except StopIteration as found:
            self.calls += 1
            self._text, self._state = cursor.text[cursor.at :], "called"
            yield Call(self._name, found.value)
        except NoCall:
            self._text = f"{form.begin}{self._name} {cursor.text}"
            self._state, self._further = "text", Text in self._kinds

    def _called_events(self, last: bool) -> Iterator[Event]:
        """Handles the end of a call, after which only a further message may follow."""
        bare = self._text.lstrip()
        if bare.startswith((END, START)):
            self._state = "header"
        elif bare and (last or not any(mark.startswith(bare) for mark in (END, START))):
            self._state, self._further = "text", Text in self._kinds
        yield from ()


def open_reader(plan: AnswerPlan) -> Reader:
    """Returns a reader of such an answer."""
    return ChannelReader(plan) if plan.start.channels else AnswerReader(plan)
