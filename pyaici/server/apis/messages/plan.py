"""What is to be done for a request: its prompt, its grammar, and how its answer is to be read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pyaici.server.apis.messages.errors import MessagesError
from pyaici.server.apis.messages.grammar import Grammar, grammar_of, level_of, seed_grammar, terminators
from pyaici.server.apis.messages.prompt import ai00_prompt, chat_prompt
from pyaici.server.apis.messages.requests import Level, MessagesRequest

#: "ai00": for models that are trained on its marks, and for those without a chat template.
#: "template": for all others, by the chat template that comes with them
PromptFormat = Literal["ai00", "template"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Of one request."""

    request: MessagesRequest
    level: Level
    prompt_format: PromptFormat
    #: does the prompt end within thinking?
    inside: bool
    #: does the model end a text itself, by a token of its chat template?
    ends: bool
    rules: Grammar | None

    @property
    def grammar(self) -> str | None:
        """In KBNF; None if nothing is enforced."""
        return self.rules.text if self.rules else None

    @property
    def argument(self) -> str | None:
        """For the controller `kbnf`; None if nothing is enforced."""
        if self.rules is None or not self.ends:
            return self.grammar
        return json.dumps({"grammar": self.grammar, "end": "model"}, ensure_ascii=False)

    @property
    def stop(self) -> Sequence[str]:
        """What ends the answer where it comes in a text: `Reader` looks for it."""
        return self.request.stop_sequences if self.level == "none" else terminators(self.request)

    def prompt(self) -> str | list[dict[str, str]]:
        """What the model goes on with: a text, or messages for its chat template."""
        return ai00_prompt(self.request) if self.prompt_format == "ai00" else chat_prompt(self.request)

    def refused(self, message: str) -> MessagesError:
        """What the client is told where the controller refuses `grammar`, with this message."""
        assert self.rules is not None
        return self.rules.refused(message)


def plan(
    request: MessagesRequest, *, prompt_format: PromptFormat = "ai00", strict_seed_grammar: bool = False
) -> Plan:
    """Raises MessagesError for a tool whose schema cannot be enforced.

    `strict_seed_grammar`: where the structure is enforced, by the grammar of ai00 as it is, with its faults.
    """
    level = level_of(request)
    inside = request.thinks and prompt_format == "ai00"
    strict = strict_seed_grammar and level == "structural"
    # a grammar of the user's ends as KBNF says
    ends = prompt_format == "template" and level != "none" and not strict
    rules = seed_grammar(terminators(request)) if strict else grammar_of(request, inside=inside, ends=ends)
    return Plan(request, level, prompt_format, inside, ends, rules)
