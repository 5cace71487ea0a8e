"""Request fields that several APIs share, with their limits."""

from __future__ import annotations

import difflib
import itertools
import json
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from pyaici.engines.engine import MAX_TOP_LOGPROBS
from pyaici.server.http.errors import bad_request, check_text

#: most characters of a controller's argument, or of a grammar
MAX_ARG = 1 << 20
#: most fields of one object: each unknown field is a separate error, and a longer list of errors is useless
MAX_FIELDS = 256
#: most messages of a chat, and parts of a message; validation of a list stops at the first error
MAX_MESSAGES, MAX_PARTS = 4096, 512
#: most characters of a name that may be a mistyped one of ours
_MAX_NAME = 32
#: most unknown names that are compared with ours: each blocks the event loop for up to a millisecond
_MAX_COMPARED = 8
#: most ignored fields that an answer names
_MAX_IGNORED = 16
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_log = logging.getLogger("aicirt.server")
#: fields that the log has named
_logged = set[str]()
#: constraint fields of other servers, and the fields that do the same here
_ELSEWHERE = {
    "guided_json": ("json_schema", "bnf_schema"),
    "guided_regex": ("regex", "bnf_schema"),
    "guided_grammar": ("grammar", "bnf_schema"),
    "guided_choice": ("choice", "bnf_schema"),
    "structured_outputs": ("json_schema", "regex", "grammar", "choice", "bnf_schema"),
    "ebnf": ("grammar", "bnf_schema"),
    "output_config": ("response_format", "json_schema", "bnf_schema"),
    "output_format": ("response_format", "json_schema", "output_config"),
    "response_format": ("json_schema", "bnf_schema"),
}

Temperature = Annotated[float, Field(ge=0, le=2, description="0 = always the most likely token")]
TopP = Annotated[
    float,
    Field(gt=0, le=1, description="sample only among the most likely tokens with this total probability"),
]
TopK = Annotated[
    int, Field(ge=0, le=1 << 20, description="sample only among so many most likely tokens; 0 = all")
]
Seed = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63, description="makes an answer repeatable")]
MaxTokens = Annotated[int, Field(ge=1, le=1 << 20, description="most tokens after the prompt")]
TopLogprobs = Annotated[
    int, Field(ge=0, le=MAX_TOP_LOGPROBS, description="number of most likely tokens to report")
]
Choices = Annotated[int, Field(ge=1, le=32, description="number of answers to each prompt")]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=1 << 31)]], Field(max_length=1 << 20, fail_fast=True)]
ControllerName = Annotated[
    str, Field(min_length=1, max_length=128, description="name of a bundled controller, id, or tag")
]


class StrictBody(BaseModel):
    """A part of a request in which unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_count(cls, body: Any) -> Any:
        check_count(body)
        return body


class ChatMessage(StrictBody):
    """A turn of a chat."""

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str


def check_count(body: Any) -> None:
    """Raises PydanticCustomError for an object with more than `MAX_FIELDS` fields."""
    if isinstance(body, dict) and len(body) > MAX_FIELDS:
        words = "there are {count} fields; at most {most} are allowed"
        raise PydanticCustomError("too_many_fields", words, {"count": len(body), "most": MAX_FIELDS})


def without_nulls(body: Any) -> Any:
    """Returns an object without the fields that are null, for APIs in which these are unset."""
    if not isinstance(body, dict):
        return body
    return {name: value for name, value in body.items() if value is not None}


def misnamed(body: Mapping[str, Any], known: Collection[str]) -> tuple[str, str] | None:
    """Returns (name, message) of the first field that is mistyped, or another server's name for a constraint.

    Other unknown fields are allowed: they matter only to other servers.
    """
    compared = 0
    for name, value in body.items():
        if name in known or value is None or len(name) > _MAX_NAME:
            continue
        if name in _ELSEWHERE:
            meant = [ours for ours in _ELSEWHERE[name] if ours in known]
            return name, f"this server has no such field; use {' or '.join(meant)}"
        compared += 1
        if compared <= _MAX_COMPARED and (close := difflib.get_close_matches(name, known, n=1, cutoff=0.8)):
            return name, f"there is no such field; did you mean {close[0]}?"
    return None


def ignored_header(names: Iterable[str]) -> dict[str, str]:
    """Returns the header that names fields which the server ignores; none without such fields.

    Logs each name once. Names that are not like those of fields are left out, and so are many of them.
    """
    named = list(itertools.islice(filter(_FIELD.fullmatch, names), _MAX_IGNORED))
    for name in named:
        if name not in _logged and len(_logged) < MAX_FIELDS:
            _logged.add(name)
            _log.info("requests have the field %s, which changes nothing here", name)
    return {"x-aici-ignored": ", ".join(named)} if named else {}


def check_choices(count: int, most: int) -> None:
    """Raises ApiError for more answers than the server generates at a time: they could never start."""
    if count > most:
        raise bad_request(f"n is {count}; this server generates at most {most} at a time", "n")


def argument_text(value: Any, param: str = "controller_arg") -> str:
    """Returns a controller's argument: texts unchanged, everything else as JSON. Raises ApiError."""
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_ARG:
        raise bad_request(f"the argument has {len(text)} characters; at most {MAX_ARG} are allowed", param)
    check_text(text, param)
    return text
