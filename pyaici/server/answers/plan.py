"""The plan of an answer, from which its grammar and its reader are made, and the marks in answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyaici.server.answers.formats import CallFormat, Function
from pyaici.server.answers.kbnf import Source

THINK, END_OF_THINKING = "<think>", "</think>"

#: in channels, as gpt-oss writes them (OpenAI's harmony)
CHANNEL, MESSAGE, END, START = "<|channel|>", "<|message|>", "<|end|>", "<|start|>"
#: the headers of reasoning and of the answer, and the beginning of each further message
ANALYSIS, FINAL, NEXT = f"{CHANNEL}analysis{MESSAGE}", f"{CHANNEL}final{MESSAGE}", f"{START}assistant"


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks around a model's reasoning."""

    begin: str = THINK
    end: str = END_OF_THINKING


@dataclass(frozen=True, slots=True)
class Start:
    """The beginning of an answer. `open`: the prompt ends within reasoning; with channels, in the answer."""

    reasoning: Marks | None = None
    open: bool = False
    #: the model writes in channels, as gpt-oss does
    channels: bool = False


@dataclass(frozen=True, slots=True)
class Ends:
    """How the texts of an answer end, if its grammar says so.

    `marks`: a text ends with one of these, which occur nowhere else. `by_token`: it may also end without one,
    by a token of the model. `without`: marks that no text contains.
    """

    marks: tuple[str, ...]
    by_token: bool
    without: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """All marks that are not in a text."""
        return (*self.without, *self.marks)


@dataclass(frozen=True, slots=True)
class AnswerPlan:
    """An answer: perhaps reasoning, then calls of functions or a text, or both.

    The grammar and the reader are made from the same plan, so that what is allowed is what is read.
    """

    start: Start = Start()
    #: the format of calls, bound to the functions; None if there are no calls
    form: CallFormat | None = None
    functions: tuple[Function, ...] = ()
    #: whether the answer must have a call, and whether it may have several
    required: bool = False
    parallel: bool = True
    #: the JSON Schema of an answer in text, in JSON
    schema: str | None = None
    schema_source: Source | None = None
    #: whether names and arguments must be those of the functions; otherwise only the name, if it is given
    checked: bool = True
    name: str | None = None
    #: the strings that end a text where they occur
    stop: tuple[str, ...] = ()
    ends: Ends | None = None
    #: reasoning may come again after text
    reasons_again: bool = False

    @property
    def exclusive(self) -> bool:
        """Whether the answer is either calls or JSON of a schema, and nothing else."""
        return self.schema is not None and not self.required

    @property
    def names(self) -> frozenset[str]:
        """The names of the functions."""
        return frozenset(function.name for function in self.functions)

    def without_reasoning(self) -> AnswerPlan:
        """Returns the plan of an answer that has no reasoning."""
        return replace(self, start=Start(channels=self.start.channels))
