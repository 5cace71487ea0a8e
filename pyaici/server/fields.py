"""Fields that requests of several APIs have, with their bounds."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import Field

from pyaici.engines.request import MAX_TOP_LOGPROBS, Sampling
from pyaici.server.errors import bad_request

#: characters of a controller's argument, or of a grammar
MAX_ARG = 1 << 20

Temperature = Annotated[float, Field(ge=0, le=2, description="0 = always the most likely token")]
TopP = Annotated[
    float, Field(gt=0, le=1, description="only the most likely tokens of this probability together")
]
TopK = Annotated[int, Field(ge=0, le=1 << 20, description="only so many most likely tokens; 0 = all")]
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63, description="makes an answer repeatable")]
MaxTokens = Annotated[int, Field(ge=1, le=1 << 20, description="tokens after the prompt")]
TopLogprobs = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS, description="most likely tokens to be listed")]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=1 << 31)]], Field(max_length=1 << 20)]
ControllerName = Annotated[
    str, Field(min_length=1, max_length=128, description="a bundled controller, an id or a tag")
]


def argument_text(value: Any, param: str = "controller_arg") -> str:
    """A controller's argument as it gets it: texts as they are, everything else as JSON. Raises ApiError."""
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_ARG:
        raise bad_request(f"the argument has {len(text)} characters; {MAX_ARG} are allowed", param)
    check_text(text, param)
    return text


def check_text(text: str, param: str) -> None:
    """Raises ApiError for what JSON can carry and UTF-8 cannot."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise bad_request("this has half of a surrogate pair, which is no character", param) from None


def sampling(
    temperature: float | None,
    top_p: float | None,
    top_k: int | None,
    seed: int | None,
    *,
    default: float = 1.0,
) -> Sampling:
    """How tokens are chosen; `default` is the temperature of who gives none."""
    return Sampling(
        temperature=default if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=top_k or 0,
        seed=seed,
    )
