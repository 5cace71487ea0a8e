"""The plan for a request: its prompt, its grammar, and how its answer is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyaici.server.apis.messages.errors import MessagesError
from pyaici.server.apis.messages.grammar import Grammar, grammar_of, level_of, seed_grammar, terminators
from pyaici.server.apis.messages.prompt import ai00_prompt, chat_prompt
from pyaici.server.apis.messages.requests import Level, MessagesRequest

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
        return self.request.stop_sequences if self.level == "none" else terminators(self.request)

    def prompt(self) -> str | list[dict[str, str]]:
        """Returns the prompt: a text, or messages for the chat template."""
        return ai00_prompt(self.request) if self.prompt_format == "ai00" else chat_prompt(self.request)

    def refused(self, message: str) -> MessagesError:
        """Returns the client's error if the controller refuses `grammar` with this message."""
        assert self.rules is not None
        return self.rules.refused(message)


def plan(
    request: MessagesRequest, *, prompt_format: PromptFormat = "ai00", strict_seed_grammar: bool = False
) -> Plan:
    """Returns the plan for a request. Raises MessagesError if a tool's schema cannot be enforced.

    `strict_seed_grammar`: where the structure is enforced, use ai00's own grammar, with its faults.
    """
    level = level_of(request)
    inside = request.thinks and prompt_format == "ai00"
    strict = strict_seed_grammar and level == "structural"
    # a user's grammar ends as KBNF defines
    ends = prompt_format == "template" and level != "none" and not strict
    rules = seed_grammar(terminators(request)) if strict else grammar_of(request, inside=inside, ends=ends)
    return Plan(request, level, prompt_format, inside, ends, rules)
