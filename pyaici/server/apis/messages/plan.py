"""The plan for a request: what its answer may be, the grammar that ensures it, and its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from pyaici.server.answers.formats import CallFormat, Function
from pyaici.server.answers.grammar import Grammar, answer_grammar
from pyaici.server.answers.kbnf import Source
from pyaici.server.answers.known_formats import AI00
from pyaici.server.answers.plan import THINK, AnswerPlan, Ends, Marks, Start
from pyaici.server.apis.messages.kbnf import seed_grammar, thinking_first
from pyaici.server.apis.messages.requests import END_OF_ANSWER, Level, MessagesError, MessagesRequest, invalid

#: "ai00": for models that are trained on its markers, and for those without a chat template. "template": for
#: all others, by their own chat template.
PromptFormat = Literal["ai00", "template"]
#: what ends a text if the request has an empty list of stop sequences
_BLANK_LINE = "\n\n"
_OUTPUT = Source("the schema of output_config.format", "output_config.format.schema")


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for one request."""

    request: MessagesRequest
    level: Level
    #: whether the prompt ends within thinking
    inside: bool
    #: how the answer is read
    answer: AnswerPlan
    #: the argument of the controller `kbnf`; None if nothing is enforced
    argument: str | None = None
    #: the grammar made from the request; None if the argument is a grammar of the user, or ai00's own
    grammar: Grammar | None = None
    #: the name that the rule `start` of a user's grammar has in the argument
    users_start: str = "start"

    def refused(self, message: str) -> MessagesError:
        """Returns the client's error if the controller refuses its argument with this message."""
        if self.grammar is None:
            return invalid(re.sub(rf"\b{self.users_start}\b", "start", message), "bnf_schema")
        if (found := self.grammar.refused(message)) is not None:
            return invalid(f"{found[1].name} is refused: {found[0]}", found[1].place)
        return invalid(f"the grammar of the answer is refused: {message}")


def plan(
    request: MessagesRequest,
    *,
    prompt_format: PromptFormat = "ai00",
    inside: bool | None = None,
    thought: bool = False,
) -> Plan:
    """Returns the plan for a request. Raises MessagesError if a tool's schema cannot be enforced.

    `inside`: the prompt ends within thinking; None = as the format has it. `thought`: the plan is for what
    follows thinking. Raises ApiError if the schemas make the grammar too long.
    """
    level = level_of(request)
    if inside is None:
        inside = request.thinks and prompt_format == "ai00"
    answer = _plan_answer(request, level, inside=inside and not thought, ends=prompt_format == "template")
    if request.strict_seed_grammar:
        text = seed_grammar(terminators(request), inside=inside, thought=thought)
        return Plan(request, level, inside, answer, text)
    if level != "none":
        # a client that asks for JSON, and for no thinking, reads the first block as JSON
        thinks = not thought and (inside or request.thinks or request.output_schema is None)
        grammar = answer_grammar(answer if thinks else answer.without_reasoning())
        argument = grammar.argument if prompt_format == "template" else grammar.text
        return Plan(request, level, inside, answer, argument, grammar)
    if request.bnf_schema is None:
        return Plan(request, level, inside, answer)
    if (request.thinks or inside) and not thought:
        text, start = thinking_first(request.bnf_schema, inside)
        return Plan(request, level, inside, answer, text, users_start=start)
    return Plan(request, level, inside, answer, request.bnf_schema)


def _plan_answer(request: MessagesRequest, level: Level, *, inside: bool, ends: bool) -> AnswerPlan:
    """Returns what the answer may be. `ends`: the model may end a text itself, by a token."""
    # ai00's own grammar allows calls of any tools
    may_call = bool(request.callable_tools) or request.strict_seed_grammar
    schema = None if request.output_schema is None else json.dumps(request.output_schema, ensure_ascii=False)
    stop = request.stop_sequences if level == "none" else terminators(request)
    if schema is not None:  # the marker that ends answers may occur in JSON
        stop = [mark for mark in request.stop_sequences if mark != END_OF_ANSWER]
    functions = _functions(request, {tool.name for tool in request.callable_tools})
    if level == "schema_aware":
        for function in functions:
            if (reason := AI00.problem(function)) is not None:
                source = function.source()
                raise invalid(f"{source.name} is refused: {reason}", source.place)
    return AnswerPlan(
        Start(Marks(), open=inside),
        AI00.bound(functions) if may_call else None,
        functions,
        required=request.must_call,
        parallel=not request.tool_choice.disable_parallel_tool_use,
        schema=schema,
        schema_source=_OUTPUT,
        checked=level == "schema_aware",
        name=request.tool_choice.name if request.tool_choice.type == "tool" else None,
        stop=tuple(stop),
        ends=Ends(tuple(terminators(request)), ends, (AI00.begin, THINK)),
        reasons_again=True,
    )


def _functions(request: MessagesRequest, names: Collection[str]) -> tuple[Function, ...]:
    return tuple(
        Function(tool.name, tool.input_schema, tool.description, f"tools.{i}.input_schema")
        for i, tool in enumerate(request.tools)
        if tool.name in names
    )


def written_calls(request: MessagesRequest) -> CallFormat:
    """Returns the format in which earlier calls of the request's tools are written."""
    return AI00.bound(_functions(request, {tool.name for tool in request.tools}))


def level_of(request: MessagesRequest) -> Level:
    """Returns how much of the answer is enforced. By default that is the structure, if there is any.

    A user's own grammar is enforced instead of the structure of tools and thinking, where ai00 drops it. The
    user's grammar is dropped if the request asks for a level that has a grammar. Fields that promise checked
    values, such as a tool's `strict`, ask for "schema_aware".
    """
    if request.bnf_validation is not None:
        return request.bnf_validation
    if request.output_schema is not None or any(tool.strict for tool in request.tools):
        return "schema_aware"
    return "structural" if (request.tools or request.thinks) and request.bnf_schema is None else "none"


def terminators(request: MessagesRequest) -> list[str]:
    """Returns the strings that end a text where a grammar requires an end."""
    return request.stop_sequences or [_BLANK_LINE]
