"""The grammar of an answer, in KBNF: thinking, then a text or calls of tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyaici.server.apis.fields import MAX_ARG
from pyaici.server.apis.messages.errors import MessagesError, invalid
from pyaici.server.apis.messages.kbnf import choice, free_name, names, quoted, renamed, without
from pyaici.server.apis.messages.requests import Level, MessagesRequest
from pyaici.server.apis.messages.tool_rules import END_OF_VALUE, OutputSchema, Rule, tool_rules
from pyaici.server.apis.thinking import END_OF_THINKING, THINK

CALLS, END_OF_CALLS = "<ai00:function_calls>", "</ai00:function_calls>"
#: what ends a text if the request has an empty list of stop sequences
_BLANK_LINE = "\n\n"
_MESSAGE = re.compile(r"line (\d+), column \d+: (?:the schema is refused\n)?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar, with the tool argument that each line is about."""

    rules: tuple[Rule, ...]
    #: name that the rule `start` of a user's grammar has here; None for a grammar of ours
    start: str | None = None

    @property
    def text(self) -> str:
        """The grammar in KBNF, with one rule of ours on each line."""
        return "\n".join(rule.text for rule in self.rules) + "\n"

    def refused(self, message: str) -> MessagesError:
        """Returns the client's error if the controller refuses the grammar with this message."""
        found = _MESSAGE.fullmatch(message)
        line = int(found[1]) if found else 0
        if self.start is not None:
            return invalid(re.sub(rf"\b{self.start}\b", "start", message), "bnf_schema")
        if found and line <= len(self.rules) and (argument := self.rules[line - 1].argument):
            reasons = [self.rules[line - 1].placed(reason) for reason in found[2].split("\n")]
            return argument.refuse("; ".join(reasons))
        return invalid(f"the grammar of the answer is refused: {message}")


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


def grammar_of(
    request: MessagesRequest, *, inside: bool, ends: bool = False, thought: bool = False
) -> Grammar | None:
    """Returns the grammar of the answer; None if nothing is enforced.

    `inside`: the prompt ends with `THINK`, so the answer begins after it. `thought`: the grammar is for what
    follows thinking. `ends`: the model ends its texts
    itself, by a token, and need not write a terminator. Raises MessagesError if a tool's schema cannot be
    enforced.
    """
    level = level_of(request)
    if level != "none":
        calls = list(_limited(_calls(request, checked=level == "schema_aware")))
        if any("any_text" in rule.text for rule in calls):
            calls.append(Rule(f"any_text ::= {without([END_OF_VALUE])};"))
        return Grammar((*_frame(request, bool(calls), inside, ends, thought), *calls))
    if request.bnf_schema is None:
        return None
    return (
        _custom(request.bnf_schema, inside)
        if (request.thinks or inside) and not thought
        else Grammar((Rule(request.bnf_schema),), "start")
    )


def seed_grammar(stops: Sequence[str], *, inside: bool = False, thought: bool = False) -> Grammar:
    """Returns the grammar of ai00 itself, for users who want exactly the texts that it allows.

    It allows nothing empty between two tags, and any text beside the calls. `inside` and `thought`: see
    `grammar_of`.
    """
    begin = "" if thought else "#ex'</think>' '</think>' ws " if inside else "thinking? "
    rules = f"""\
start ::= {begin}content;
thinking ::= '<think>' #ex'</think>' '</think>' ws;
content ::= function_calls | text_response;
function_calls ::= #ex'<ai00:function_calls>' '<ai00:function_calls>\\n' invokes '</ai00:function_calls>';
invokes ::= invoke*;
invoke ::= '  <invoke name="' tool_name '">\\n' params '  </invoke>\\n';
params ::= param*;
param ::= '    <parameter name="' param_name '">' param_value '</parameter>\\n';
tool_name ::= #'[a-zA-Z0-9_-]+';
param_name ::= #'[a-zA-Z0-9_]+';
param_value ::= #ex'</parameter>';
text_response ::= #ex'<ai00:function_calls>' #'[\\\\s\\\\S]*' terminator;
ws ::= #'[ \\t\\n\\r]*';
terminator ::= {choice(stops)};"""
    return Grammar(tuple(Rule(line) for line in rules.split("\n")))


def _frame(request: MessagesRequest, calls: bool, inside: bool, ends: bool, thought: bool) -> Iterator[Rule]:
    """Yields all rules but those of calls. Text before a call or a terminator contains no markers."""
    stops = terminators(request)
    contents = [*(["calls"] if calls else []), *([] if request.must_call else ["answer"])]
    # a client that asks for JSON, and for no thinking, reads the first block as JSON
    thinks = not thought and (inside or request.thinks or request.output_schema is None)
    yield Rule(f"start ::= {_begin(inside) if thinks else ''} ({' | '.join(contents)});")
    if thinks:
        yield from _thinking(inside, "thinking", "blanks")
    if request.must_call:
        return
    if request.output_schema is not None:
        schema = OutputSchema(request.output_schema)
        yield Rule(f"answer ::= #json{quoted(schema.text)};", schema)
    else:
        yield Rule(f"answer ::= {'text terminator? | terminator' if ends else 'text? terminator'};")
        yield Rule(f"text ::= {without([CALLS, THINK, *stops])};")
        yield Rule(f"terminator ::= {choice(stops)};")


def _calls(request: MessagesRequest, *, checked: bool) -> Iterator[Rule]:
    """Yields the rules for `calls`; none if the answer must not have any."""
    tools = request.callable_tools
    if not tools:
        return
    # a required call comes first, and text beside calls would not match the schema of an answer
    before = "" if request.must_call or request.output_schema is not None else "text? "
    times = "" if request.tool_choice.disable_parallel_tool_use else "+"
    yield Rule(f"calls ::= {before}{quoted(CALLS + chr(10))} invoke{times} {quoted(END_OF_CALLS)};")
    if checked:
        numbered = [(i, tool) for i, tool in enumerate(request.tools) if tool in tools]
        yield Rule(f"invoke ::= {' | '.join(f't{i}' for i, _ in numbered)};")
        for i, tool in numbered:
            yield from tool_rules(i, tool, f"t{i}")
    else:
        only = quoted(tools[0].name) if request.tool_choice.type == "tool" else "#'[a-zA-Z0-9_-]+'"
        yield Rule(f"invoke ::= '  <invoke name=\"' {only} '\">\\n' parameter* '  </invoke>\\n';")
        yield Rule("parameter ::= '    <parameter name=\"' #'[^\"<>\\n]+' '\">' any_text? '</parameter>\\n';")


def _limited(rules: Iterator[Rule]) -> Iterator[Rule]:
    """Yields rules. Raises MessagesError as soon as they are too long: a small schema may have long rules."""
    length = 0
    for rule in rules:
        length += len(rule.text)
        if length > MAX_ARG:
            raise invalid(f"the grammar of the tools has more than {MAX_ARG} characters", "tools")
        yield rule


def _begin(inside: bool) -> str:
    return "thinking" if inside else "thinking?"


def _thinking(inside: bool, thinking: str, blanks: str) -> Iterator[Rule]:
    begin = "" if inside else quoted(THINK) + " "
    yield Rule(f"{thinking} ::= {begin}({without([END_OF_THINKING])})? {quoted(END_OF_THINKING)} {blanks};")
    yield Rule(f"{blanks} ::= #'[ \\t\\n\\r]*';")


def _custom(grammar: str, inside: bool) -> Grammar:
    """Returns the user's grammar with thinking in front.

    All of our names are unused in it, and its `start` is renamed to one of them. It comes first, so that
    places in error messages are right.
    """
    taken = names(grammar)
    start = free_name("start", taken)
    thinking, blanks = free_name("thinking", taken | {start}), free_name("blanks", taken | {start})
    begin = thinking if inside else thinking + "?"
    return Grammar(
        (
            Rule(renamed(grammar, "start", start)),
            Rule(f"start ::= {begin} {start};"),
            *_thinking(inside, thinking, blanks),
        ),
        start,
    )
