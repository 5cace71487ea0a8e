"""The plan for a request: its prompt, its grammar, and how its answer is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyaici.server.apis.messages.errors import MessagesError
from pyaici.server.apis.messages.grammar import Grammar, grammar_of, level_of, seed_grammar, terminators
from pyaici.server.apis.messages.requests import END_OF_ANSWER, Level, MessagesRequest

#: "ai00": for models that are trained on its markers, and for those without a chat template. "template": for
#: all others, by their own chat template.
PromptFormat = Literal["ai00", "template"]


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan for one request."""

    request: MessagesRequest
    level: Level
    prompt_format: PromptFormat
    #: whether the prompt ends within thinking
    inside: bool
    #: whether the model ends a text itself, by a token of its chat template
    ends: bool
    rules: Grammar | None

    @property
    def grammar(self) -> str | None:
        """The grammar in KBNF; None if nothing is enforced."""
        return self.rules.text if self.rules else None

    @property
    def argument(self) -> str | None:
        """The argument of the controller `kbnf`; None if nothing is enforced."""
        if self.rules is None or not self.ends:
            return self.grammar
        return json.dumps({"grammar": self.grammar, "end": "model"}, ensure_ascii=False)

    @property
    def stop(self) -> Sequence[str]:
        """The strings that end the answer when they occur in a text: `Reader` looks for them."""
        if self.request.output_schema is not None:  # the marker that ends answers may occur in JSON
            return [stop for stop in self.request.stop_sequences if stop != END_OF_ANSWER]
        return self.request.stop_sequences if self.level == "none" else terminators(self.request)

    @property
    def may_call(self) -> bool:
        """Whether the answer may have calls: of the request's tools, or any, by ai00's own grammar."""
        return bool(self.request.callable_tools) or self.request.strict_seed_grammar

    def refused(self, message: str) -> MessagesError:
        """Returns the client's error if the controller refuses `grammar` with this message."""
        assert self.rules is not None
        return self.rules.refused(message)


def plan(
    request: MessagesRequest,
    *,
    prompt_format: PromptFormat = "ai00",
    inside: bool | None = None,
    thought: bool = False,
) -> Plan:
    """Returns the plan for a request. Raises MessagesError if a tool's schema cannot be enforced.

    `inside`: the prompt ends within thinking; None = as the format has it. `thought`: the plan is for what
    follows thinking.
    """
    level = level_of(request)
    if inside is None:
        inside = request.thinks and prompt_format == "ai00"
    strict = request.strict_seed_grammar
    # a user's grammar ends as KBNF defines
    ends = prompt_format == "template" and level != "none" and not strict
    if strict:
        rules: Grammar | None = seed_grammar(terminators(request), inside=inside, thought=thought)
    else:
        rules = grammar_of(request, inside=inside, ends=ends, thought=thought)
    return Plan(request, level, prompt_format, inside, ends, rules)
