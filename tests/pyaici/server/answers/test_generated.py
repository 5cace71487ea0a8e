"""Reads answers that are generated with hostile texts and values, in each format, cut at every place."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from lab.oracles.grammars.vocabularies import byte_vocab
from lab.oracles.grammars.walk import Controller
from lab.runners.host import Host
from pyaici.bundled import find_controller
from pyaici.server.answers.argument_formats import PythonicFormat, TaggedFormat
from pyaici.server.answers.calls import Call
from pyaici.server.answers.formats import CallFormat, Function
from pyaici.server.answers.grammar import answer_grammar
from pyaici.server.answers.known_formats import AI00, FORMATS, HARMONY
from pyaici.server.answers.plan import ANALYSIS, END, FINAL, NEXT, AnswerPlan, Marks, Start
from pyaici.server.answers.reader import Event, Reasoning, Text, open_reader
from pyaici.server.answers.stops import Stop
from tests.pyaici.server.answers.events import joined
from tests.thorough import cases

#: answers in each format; each is read whole, in characters, and cut at random places
ANSWERS = cases(60, 1_000_000)
#: answers that are also cut at every place, and those that are compared with the grammar
EVERY_PLACE, CHECKED = cases(4, 2000), cases(5, 200)
#: a stop string, which counts in texts alone
STOP = "§"
ALL = [*FORMATS.values(), AI00]
_PIECES = [
    *(mark for form in ALL for mark in (form.begin, form.end, form.begin[:-1], form.end[1:]) if mark),
    *("<parameter=", "</parameter>", "\n</parameter>\n", "<arg_key>", "</arg_value>\n", "</function>"),
    *("<think>", "</think>", "</thin", "<|message|>", "<|end|>", "```", STOP, "[ARGS]", "(", ")]", ", "),
    *('"', '\\"', "\\", "'", "{", "}", "[", "]", "<", ">", "\n", " ", "\t", "a", "é", "😀", "null", "12"),
]
_FUNCTIONS = (
    Function(
        "weather",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "note": {"type": ["string", "null"]},
                "more": {},
                "unit": {"type": "string", "enum": ["C", "F"]},
                "code": {"type": "string", "pattern": "^[a-z<>/\n]*$"},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    ),
    Function("now"),
)


class _Writer:
    """Writes answers in a format, with what its reader should find."""

    def __init__(self, form: CallFormat, seed: int) -> None:
        self._random = random.Random(f"{form.name} {seed}")
        self._form = form.bound(_FUNCTIONS)
        self._channels = form is HARMONY
        start = Start(Marks(ANALYSIS, END), channels=True) if self._channels else Start(Marks())
        self.plan = AnswerPlan(start, self._form, _FUNCTIONS, stop=(STOP,))

    def write(self) -> tuple[str, list[Event]]:
        """Returns an answer and its events."""
        chance, form = self._random, self._form
        text, events = "", list[Event]()
        if chance.random() < 0.3:
            thought = self._text("</think>", END, "<|start|>").strip()
            text = f"{ANALYSIS}{thought}{END}{NEXT}" if self._channels else f"<think>{thought}</think>\n\n"
            events += [Reasoning(thought)] if thought else []
        calls = self._calls() if chance.random() < 0.8 else []
        if self._channels or not form.begin:
            if not calls:
                words = self._text("<think>", "<|start|>", END).lstrip(" \t\n{[") or "words"
                return self._with_words(text + (FINAL if self._channels else ""), events, words)
            return text + form.write(calls), events + [Call(*call) for call in calls]
        words = self._text(form.begin, "<think>")
        if not events:  # blanks at the beginning of an answer are part of it
            words = words.strip()
        if not calls or STOP in words.lstrip():
            return self._with_words(text, events, words.lstrip() if events else words)
        if (words + form.begin).index(form.begin) < len(words):
            words = ""
        before = words.strip()
        text += words + form.write(calls)
        events += [*([Text(before)] if before else []), *(Call(*call) for call in calls)]
        if form.end and not form.final and chance.random() < 0.5:
            return self._with_words(text, events, self._text(form.begin).lstrip())
        return text, events

    def _with_words(self, text: str, events: list[Event], words: str) -> tuple[str, list[Event]]:
        """Returns an answer that ends with these words, and its events."""
        before, stop, _ = words.partition(STOP)
        found: list[Event] = [Text(before)] if before else []
        return text + words, [*events, *found, *([Stop(STOP)] if stop else [])]

    def _text(self, *without: str) -> str:
        text = "".join(self._random.choices(_PIECES, k=self._random.randrange(6)))
        for mark in without:
            while mark in text:
                text = text.replace(mark, "")
        return text

    def _calls(self) -> list[tuple[str, dict[str, Any]]]:
        single = (not self._form.listed and not self._form.begin) or self._channels
        count = 1 if single else self._random.randint(1, 3)
        names = self._random.choices(["now", "weather"], [1, 4], k=count)
        return [(name, self._values() if name == "weather" else {}) for name in names]

    def _values(self) -> dict[str, Any]:
        chance = self._random
        values: dict[str, Callable[[], Any]] = {
            "city": self._plain,
            "days": lambda: chance.randint(-5, 10**9),
            "note": lambda: chance.choice([None, self._text(), "null"]),
            "more": lambda: chance.choice([True, 1.5, [self._text(), {}], {self._text(): [None]}]),
            "unit": lambda: chance.choice("CF"),
            "code": lambda: "".join(char for char in self._plain() if char in "az<>/\n"),
        }
        return {name: make() for name, make in values.items() if name == "city" or chance.random() < 0.5}

    def _plain(self) -> str:
        """Returns a text that may be written as it is: without the mark that ends it."""
        end = self._form.end_of_value if isinstance(self._form, TaggedFormat) else "\0"
        text = self._text(end)
        return "" if end in text + end[:-1] else text


def _read(plan: AnswerPlan, pieces: Sequence[str]) -> list[Event]:
    reader = open_reader(plan)
    events = [event for piece in pieces for event in reader.feed(piece)]
    return joined(events if reader.over else events + reader.end())


@pytest.mark.parametrize("form", ALL, ids=[form.name for form in ALL])
def test_what_is_written_is_read_however_it_is_cut(form: CallFormat) -> None:
    writer = _Writer(form, 1)
    for number in range(ANSWERS):
        text, expected = writer.write()
        places = sorted({0, len(text), *(writer._random.randrange(len(text) + 1) for _ in range(3))})
        ways = [[text], list(text), [text[a:b] for a, b in itertools.pairwise(places)]]
        if number < EVERY_PLACE:
            ways += [[text[:at], text[at:]] for at in range(len(text))]
        for pieces in ways:
            assert _read(writer.plan, pieces) == expected, (text, pieces)
        # what has been read is written as it was
        calls = [(event.name, event.arguments) for event in expected if isinstance(event, Call)]
        assert not calls or writer.plan.form is None or writer.plan.form.write(calls) in text


@pytest.fixture(scope="module")
def kbnf() -> Iterator[Callable[[str], Controller]]:
    """Returns a function that starts the controller kbnf with an argument."""
    with Host() as host:
        program, vocab = host.compile(find_controller("kbnf").read_bytes()), byte_vocab()
        yield lambda grammar: Controller(program, vocab, grammar)


@pytest.mark.parametrize("form", ALL, ids=[form.name for form in ALL])
def test_what_is_written_is_allowed(form: CallFormat, kbnf: Callable[[str], Controller]) -> None:
    writer = _Writer(form, 2)
    assert isinstance(form, PythonicFormat) or form.supports(_FUNCTIONS)
    controller = kbnf(answer_grammar(writer.plan).argument)
    for _ in range(CHECKED):
        text, events = writer.write()
        assert controller.accepts(text), (text, events)
