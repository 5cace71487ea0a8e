"""Log-probabilities of tokens, in the two formats of OpenAI's API."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.server.answers.text import TextToken
    from pyaici.server.models import ServedModel


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
