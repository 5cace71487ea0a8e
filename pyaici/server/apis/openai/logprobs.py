"""Log-probabilities of tokens, in the two formats of OpenAI's API."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyaici.server.apis.text import TextToken
    from pyaici.server.models import ServedModel


#: JSON has no minus infinity; OpenAI's API writes this number
_IMPOSSIBLE = -9999.0


def chat_logprobs(model: ServedModel, tokens: Sequence[TextToken]) -> dict[str, Any]:
    """Returns the format of chats. Tokens that a controller appended count as certain: 0."""
    return {
        "content": [
            {
                **_entry(model, item.token, item.logprob),
                "top_logprobs": [_entry(model, token, value) for token, value in item.top or ()],
            }
            for item in tokens
        ],
        "refusal": None,
    }


def completion_logprobs(model: ServedModel, tokens: Sequence[TextToken], before: int) -> dict[str, Any]:
    """Returns the format of completions. `before`: characters of the text before the answer."""
    return {
        "tokens": [model.token_text(item.token) for item in tokens],
        "token_logprobs": [_value(item.logprob) for item in tokens],
        "top_logprobs": [
            {model.token_text(token): _value(value) for token, value in item.top or ()} for item in tokens
        ],
        "text_offset": [before + item.start for item in tokens],
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
