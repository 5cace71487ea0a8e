"""Thinking of models: turned on and off by chat templates, and limited to a number of tokens."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyaici.server.answers.plan import END_OF_THINKING, THINK
from pyaici.server.answers.text import TextDelta, TextToken, answer_deltas

if TYPE_CHECKING:
    from pyaici.server.answers.reader import Reader
    from pyaici.server.models import ServedModel
    from pyaici.server.service import Job, Service


#: variables of chat templates that turn thinking on and off
_SWITCHES = ("enable_thinking", "thinking")
#: tokens at the end of a prompt that are searched for the beginning of thinking
_TAIL = 8


@functools.lru_cache(maxsize=8)
def template_variables(template: str) -> frozenset[str]:
    """Returns the names that a chat template reads and does not set; none if it cannot be parsed."""
    import jinja2

    # `jinja2.meta` would compute constants, such as 9**9**9
    environment = jinja2.Environment(extensions=["jinja2.ext.loopcontrols"])
    try:
        found = list(environment.parse(template).find_all(jinja2.nodes.Name))
    except (jinja2.TemplateError, RecursionError):
        return frozenset()
    return frozenset(name.name for name in found if name.ctx == "load") - {
        name.name for name in found if name.ctx != "load"
    }


def switches(model: ServedModel, on: bool) -> dict[str, Any]:
    """Returns the variables that turn thinking on or off in the model's chat template, if it has any."""
    known = template_variables(model.chat_template)
    return {name: on for name in _SWITCHES if name in known}


def takes_effort(model: ServedModel) -> bool:
    """Returns whether the model's chat template has the variable `reasoning_effort`."""
    return "reasoning_effort" in template_variables(model.chat_template)


def opens_thinking(model: ServedModel, prompt: Sequence[int]) -> bool:
    """Returns whether a prompt ends within thinking, as some templates begin the answer."""
    tail = "".join(model.token_text(token) for token in prompt[-_TAIL:])
    return tail.rstrip().endswith(THINK)


@dataclass(frozen=True, slots=True)
class ThinkingLimit:
    """Ends thinking by force after so many tokens of the answer."""

    tokens: int
    #: what follows thinking; its prompt is replaced
    rest: Job
    #: what the server writes to end thinking
    forced: str = f"\n{END_OF_THINKING}\n\n"


async def limited_deltas(
    service: Service, job: Job, limit: ThinkingLimit | None, reader: Reader
) -> AsyncGenerator[TextDelta, None]:
    """Does what `answer_deltas` does, with a limit on thinking.

    If the model thinks for longer, the server ends its sequence, writes the mark that ends thinking, and goes
    on with a new sequence for the rest. The cache has the tokens before.
    """
    if limit is None:
        async with contextlib.aclosing(answer_deltas(service, job, reader)) as deltas:
            async for delta in deltas:
                yield delta
        return
    async with service.turn(job.user):
        length, count, tokens = 0, 0, list[int]()
        if limit.tokens or not reader.reasons:
            first = answer_deltas(service, job, reader, in_turn=True)
            async with contextlib.aclosing(first) as deltas:
                async for delta in deltas:
                    yield delta
                    if delta.finish is not None:
                        return
                    length += len(delta.text) - delta.backtrack
                    del tokens[len(tokens) - delta.backtrack_tokens :]
                    tokens += [token.token for token in delta.tokens]
                    count += delta.grown
                    if count >= limit.tokens and reader.reasons:
                        break
        forced = list(service.model.tokenizer.encode(limit.forced, add_special_tokens=False))
        written = [TextToken(token, length) for token in forced]
        events = reader.feed(limit.forced)
        yield TextDelta(limit.forced, events=events, tokens=written, grown=len(forced))
        left = None if job.max_tokens is None else job.max_tokens - count - len(forced)
        prompt = [*job.prompt, *tokens, *forced]
        if (left is not None and left <= 0) or len(prompt) >= service.model.max_context:
            yield TextDelta(events=reader.end(), finish="length")
            return
        rest = replace(limit.rest, prompt=prompt, max_tokens=left)
        last = answer_deltas(service, rest, reader, in_turn=True)
        async with contextlib.aclosing(last) as deltas:
            async for delta in deltas:
                # the first sequence has put the prompt into the cache
                yield replace(delta, cached=0) if count else delta
