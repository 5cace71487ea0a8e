"""The grammar of an answer, in KBNF: optional reasoning, then calls or text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyaici.server.answers.argument_formats import TaggedFormat
from pyaici.server.answers.formats import CallFormat
from pyaici.server.answers.kbnf import (
    ANY_TEXT,
    BLANKS,
    Rule,
    Source,
    json_of,
    literal,
    one_of,
    quoted,
    until,
    without,
)
from pyaici.server.answers.plan import ANALYSIS, END, FINAL, NEXT, AnswerPlan, Start

_REFUSED = re.compile(r"line (\d+), column \d+: (?:the schema is refused\n)?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar in KBNF, with the schema that each line is made from."""

    rules: tuple[Rule, ...]

    @property
    def text(self) -> str:
        """The grammar, with one rule on each line."""
        return "\n".join(rule.text for rule in self.rules) + "\n"

    @property
    def argument(self) -> str:
        """The argument of the controller `kbnf`, for answers that the model ends."""
        return model_ends(self.text)

    def refused(self, message: str) -> tuple[str, Source] | None:
        """Returns the schema that the controller refuses the grammar for with this message, and the reason.

        Returns None if it is about no schema.
        """
        found = _REFUSED.fullmatch(message)
        line = int(found[1]) if found else 0
        if not found or line > len(self.rules) or (source := self.rules[line - 1].source) is None:
            return None
        return "; ".join(map(source.placed, found[2].split("\n"))), source


def answer_grammar(plan: AnswerPlan) -> Grammar:
    """Returns the grammar of an answer. Raises ApiError if the schemas make it too long."""
    if plan.form is not None and plan.start.channels:
        return Grammar(tuple(_in_channels(plan, plan.form)))
    return Grammar(tuple(_rules(plan, plan.form)))


def model_ends(grammar: str) -> str:
    """Returns the argument of the controller `kbnf` for a grammar of answers that the model ends."""
    return json.dumps({"grammar": grammar, "end": "model"}, ensure_ascii=False)


def with_reasoning(start: Start, answer: str, definitions: Sequence[str]) -> str:
    """Returns the grammar of an answer after optional reasoning.

    `answer`: an expression; `definitions` has the rules that it needs.
    """
    before, rules = _before(start)
    lines = [f"start ::= {before}answer;", f"answer ::= {answer};", *(rule.text for rule in rules)]
    return "\n".join([*lines, *definitions]) + "\n"


def _before(start: Start) -> tuple[str, list[Rule]]:
    """Returns (what comes before the answer itself, the rules for that)."""
    if start.channels:
        before, rules = _analysis(start)
        return f"{before}{quoted(FINAL)} ", rules
    if start.reasoning is None:
        return "", []
    thought = f"{until(start.reasoning.end)} {BLANKS}"
    if start.open:
        return "thought ", [Rule(f"thought ::= {thought};")]
    return "reasoning? ", [Rule(f"reasoning ::= {quoted(start.reasoning.begin)} {thought};")]


def _analysis(start: Start) -> tuple[str, list[Rule]]:
    """Returns (optional reasoning in a channel, up to the header of the next message, its rules)."""
    if start.reasoning is None:
        return "", []
    return "reasoning? ", [Rule(f"reasoning ::= {quoted(ANALYSIS)} {until(END + NEXT)};")]


def _rules(plan: AnswerPlan, form: CallFormat | None) -> Iterator[Rule]:
    before, rules = _before(plan.start)
    contents = [] if form is None else [_calls(plan, form)]
    contents += [] if plan.required else ["answer"]
    if form is not None and form.begin and form.end and not (form.final or plan.required or plan.exclusive):
        # text may follow the calls
        several = "*" if plan.parallel and not form.listed else "?"
        yield Rule(f"start ::= {before}({contents[0]}){several} answer;")
    else:
        yield Rule(f"start ::= {before}{one_of(contents)};")
    if form is not None and (plan.checked or not isinstance(form, TaggedFormat)):
        yield from form.rules(plan.functions, parallel=plan.parallel)
    elif isinstance(form, TaggedFormat):
        yield from form.loose_rules(plan.name, parallel=plan.parallel)
    yield from () if plan.required else _answer_rules(plan)
    yield from rules


def _calls(plan: AnswerPlan, form: CallFormat) -> str:
    """Returns the expression of calls, which text may precede."""
    if not form.begin:  # the first character decides
        return "call"
    call = f"{quoted(form.begin)} call"
    if not (plan.required or plan.exclusive):
        return f"({_words(plan)})? {call}"
    return f"{call} ({BLANKS} {call})*" if plan.parallel and not form.listed else call


def _answer_rules(plan: AnswerPlan) -> Iterator[Rule]:
    """Yields the rule `answer`, for an answer or its rest without calls."""
    form = plan.form
    if plan.schema is not None:
        yield Rule(f"answer ::= {json_of(plan.schema)};", plan.schema_source)
    elif form is not None and not form.begin:
        yield Rule(rf"answer ::= #'[ \t\r\n]*([^\{form.first} \t\r\n][\s\S]*)?';")
    elif plan.ends is not None:
        end = one_of(map(quoted, plan.ends.marks))
        words = f"{_words(plan)} {end}? | {end}" if plan.ends.by_token else f"({_words(plan)})? {end}"
        yield Rule(f"answer ::= {words};")
    else:
        yield Rule(f"answer ::= ({_words(plan)})?;")


def _words(plan: AnswerPlan) -> str:
    """Returns an expression of text before calls or at the end, which has at least one character."""
    reasoning, form = plan.start.reasoning, plan.form
    if plan.ends is not None:
        return without(plan.ends.all)
    begins = [form.begin] if form is not None and form.begin else []
    if reasoning is None or plan.start.open:
        return without(begins) if begins else r"#'[\s\S]+'"
    # what begins like reasoning is read as reasoning, in which the marks of calls are text
    return without(begins, rf"^[ \t\r\n]*{literal(reasoning.begin)}")


def _in_channels(plan: AnswerPlan, form: CallFormat) -> Iterator[Rule]:
    """Yields the rules of an answer in channels, in which a call ends the answer."""
    before, rules = _analysis(plan.start)
    final = f"{quoted(FINAL)} {ANY_TEXT if plan.schema is None else json_of(plan.schema)}"
    contents = [f"{quoted(form.begin)} call", *([] if plan.required else [final])]
    yield Rule(f"start ::= {before}({' | '.join(contents)});")
    yield from form.rules(plan.functions, parallel=False)
    yield from rules
