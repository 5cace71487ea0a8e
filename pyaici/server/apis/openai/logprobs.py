"""Log-probabilities of tokens in the two formats of OpenAI's API, also of the tokens of prompts."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from pyaici.engines.record import TextTrail
from pyaici.server.answers.text import TextToken
from pyaici.server.http.errors import bad_request, from_aici

if TYPE_CHECKING:
    from pyaici.engines.engine import TokenScore
    from pyaici.server.answers.text import TextToken
    from pyaici.server.http.users import User
    from pyaici.server.models import ServedModel
    from pyaici.server.service import Service

#: JSON has no minus infinity; OpenAI's API writes this number
_IMPOSSIBLE = -9999.0


def chat_logprobs(model: ServedModel, tokens: Sequence[TextToken]) -> dict[str, Any]:
    """Returns the format of chats. Tokens that a controller appended count as certain: 0."""
    return {"content": list(chat_entries(model, tokens)), "refusal": None}


def chat_entries(model: ServedModel, tokens: Iterable[TextToken]) -> Iterator[dict[str, Any]]:
    """Yields the `content` of the format of chats."""
    for item in tokens:
        top = [_entry(model, token, value) for token, value in item.top or ()]
        yield {**_entry(model, item.token, item.logprob), "top_logprobs": top}


def completion_logprobs(model: ServedModel, tokens: Sequence[TextToken], before: int) -> dict[str, list[Any]]:
    """Returns the format of completions. `before`: characters of the text before the answer."""
    return {name: list(values) for name, values in completion_columns(model, tokens, before).items()}


def completion_columns(
    model: ServedModel, tokens: Sequence[TextToken], before: int
) -> dict[str, Iterator[Any]]:
    """Returns the same with an iterator in place of each list."""
    return {
        "tokens": (model.token_text(item.token) for item in tokens),
        "token_logprobs": (_value(item.logprob) for item in tokens),
        "top_logprobs": (
            {model.token_text(token): _value(value) for token, value in item.top or ()} for item in tokens
        ),
        "text_offset": (before + item.start for item in tokens),
    }


def _entry(model: ServedModel, token: int, logprob: float | None) -> dict[str, Any]:
    return {
        "token": model.token_text(token),
        "logprob": _value(logprob),
        "bytes": list(model.vocabulary.token_bytes(token)),
    }


def _value(logprob: float | None) -> float:
    if logprob is None or math.isnan(logprob):
        return 0.0
    return max(logprob, _IMPOSSIBLE)


#: Most log-probabilities of prompts in an answer: each takes some hundred bytes until it is sent.
MAX_SCORES = 1 << 17


@dataclass(frozen=True, slots=True)
class PromptScores:
    """Prompts to score. `count`: most likely tokens to list at each place."""

    prompts: Sequence[list[int]]
    count: int

    def check(self, model: ServedModel) -> None:
        """Raises ApiError if the engine scores no prompts, or if there are too many tokens."""
        if model.scores is None:
            raise bad_request("this engine has no log-probabilities of prompts: leave out echo", "echo")
        total = sum(map(len, self.prompts)) * (1 + self.count)
        if total > MAX_SCORES:
            raise bad_request(
                f"echo with logprobs would list {total} log-probabilities of prompts; at most "
                f"{MAX_SCORES} are allowed",
                "logprobs",
            )

    async def compute(self, service: Service, user: User) -> list[dict[str, Any]]:
        """Returns the log-probabilities of each prompt, as completions have them. Raises ApiError.

        Takes a turn, as a request that generates does.
        """
        model = service.model
        assert model.scores is not None
        abandoned = threading.Event()
        found: list[dict[str, Any]] = []
        try:
            async with service.turn(user):
                for prompt in self.prompts:
                    if not prompt:
                        found.append(completion_logprobs(model, [], 0))
                        continue
                    future = service.engine.post_in_pieces(
                        partial(model.scores, prompt, self.count), lambda: not abandoned.is_set()
                    )
                    scores = await asyncio.wrap_future(future)
                    found.append(await service.reading.read(user, partial(_written, model, prompt, scores)))
        except AiciError as error:
            raise from_aici(error, "prompt") from None
        except ValueError as error:
            raise bad_request(str(error), "prompt") from None
        finally:
            abandoned.set()  # a client that has disconnected must not delay others
        return found


def _written(model: ServedModel, prompt: Sequence[int], scores: Sequence[TokenScore]) -> dict[str, Any]:
    tokens = [TextToken(prompt[0], 0)]
    trail = TextTrail(model.vocabulary.tokens)
    start = len(trail.append(prompt[:1]))
    for token, (logprob, top) in zip(prompt[1:], scores, strict=True):
        tokens.append(TextToken(token, start, logprob, top))
        start += len(trail.append([token]))
    wire = completion_logprobs(model, tokens, 0)
    # nothing precedes the first token
    wire["token_logprobs"][0] = wire["top_logprobs"][0] = None
    return wire
