"""Request fields that several APIs share, with their limits."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, PrivateAttr, model_validator
from pydantic.functional_validators import ModelWrapValidatorHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from pyaici.engines.engine import MAX_TOP_LOGPROBS
from pyaici.server.answers.kbnf import MAX_GRAMMAR
from pyaici.server.http.errors import bad_request, check_text

#: most characters of a controller's argument
MAX_ARG = MAX_GRAMMAR
#: most fields of one object: each unknown field is a separate error, and a longer list of errors is useless
MAX_FIELDS = 256
#: most messages of a chat, and parts of a message; validation of a list stops at the first error
MAX_MESSAGES, MAX_PARTS = 4096, 512
#: most characters of a name that may be a mistyped one of ours
_MAX_NAME = 32
#: most unknown names that are compared with ours: each blocks the event loop for up to a millisecond
_MAX_COMPARED = 8
#: fields that have an answer follow a schema, and those for other forms; each API has some of both
_SCHEMAS = ("response_format", "json_schema", "output_config", "format", "text")
_FORMS = ("grammar", "regex", "choice", "bnf_schema", "format")
#: constraint fields of other servers and of the other APIs here, and the fields that do the same
_ELSEWHERE = {
    **dict.fromkeys((*_FORMS, "ebnf", "structured_outputs", "controller", "script"), _FORMS),
    **dict.fromkeys(("guided_regex", "guided_grammar", "guided_choice"), _FORMS),
    **dict.fromkeys((*_SCHEMAS, "guided_json", "output_format"), _SCHEMAS),
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
    str,
    Field(
        min_length=1,
        max_length=300,
        description="name of a bundled controller, id, or tag; or a reference to a registry that the "
        "operator allows, such as oci://registry.example/team/name:1.0",
    ),
]


class StrictBody(BaseModel):
    """A part of a request in which unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _check_count(cls, body: Any) -> Any:
        check_count(body)
        return body


class Refused(NamedTuple):
    """A field that would change what an answer may contain, and is not supported."""

    #: how to do without it
    cure: str
    #: values that change nothing, besides null
    neutral: tuple[Any, ...] = (0, "", [], {})


class Part(BaseModel):
    """A part of a request in which a field that is null is unset.

    Clients send null for what their users leave alone.
    """

    refused: ClassVar[Mapping[str, Refused]] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_fields(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        check_refused(body, cls.refused)
        return {name: value for name, value in body.items() if value is not None}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler.resolve_ref_schema(handler(core_schema))
        for name, field in schema.get("properties", {}).items():
            if name not in schema.get("required", ()) and {"type": "null"} not in field.get("anyOf", ()):
                kept = {
                    word: field.pop(word) for word in ("title", "description", "default") if word in field
                }
                schema["properties"][name] = {"anyOf": [field, {"type": "null"}], **kept}
        return schema


#: ways to sample that no API here has
OTHER_SAMPLING = {
    **dict.fromkeys(
        ("mirostat", "dry_multiplier", "xtc_probability", "top_a"), Refused("use temperature and top_p")
    ),
    "tfs_z": Refused("use temperature and top_p", (1,)),
}


class OpenBody(Part):
    """A part of a request that may have fields of other servers: hints, which change nothing here.

    Fields that are refused or misspelled, and constraints of other servers, are errors.
    """

    #: other names of fields
    aliases: ClassVar[frozenset[str]] = frozenset()
    _ignored: list[str] = PrivateAttr(default_factory=list)

    @model_validator(mode="wrap")
    @classmethod
    def _name_ignored(cls, body: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(body, dict):
            return handler(body)
        check_count(body)
        known = {*cls.model_fields, *cls.aliases}
        unknown = [
            name
            for name, value in body.items()
            if value is not None and name not in known and name not in cls.refused
        ]
        if found := misnamed(unknown, known):
            raise _field_error(*found)
        made = handler(body)
        made._ignored = sorted(unknown)
        return made

    @property
    def ignored(self) -> Iterable[str]:
        """Names of the fields that change nothing here, also those of parts, such as `options.num_ctx`."""
        yield from self._ignored
        for name in type(self).model_fields:
            if isinstance(part := getattr(self, name), OpenBody):
                yield from (f"{name}.{inner}" for inner in part.ignored)


class ChatMessage(StrictBody):
    """A turn of a chat."""

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str


def check_count(body: Any) -> None:
    """Raises PydanticCustomError for an object with more than `MAX_FIELDS` fields."""
    if isinstance(body, dict) and len(body) > MAX_FIELDS:
        words = "there are {count} fields; at most {most} are allowed"
        raise PydanticCustomError("too_many_fields", words, {"count": len(body), "most": MAX_FIELDS})


def check_refused(body: Mapping[str, Any], refused: Mapping[str, Refused]) -> None:
    """Raises PydanticCustomError for the first field that is refused, unless its value changes nothing."""
    for name, value in body.items():
        if value is not None and name in refused and value not in refused[name].neutral:
            raise _field_error(name, f"this field is not supported: {refused[name].cure}")


def _field_error(name: str, words: str) -> PydanticCustomError:
    return PydanticCustomError("field", "{words}", {"param": name, "words": words})


def misnamed(unknown: Iterable[str], known: Collection[str]) -> tuple[str, str] | None:
    """Returns (name, message) of the first field that is mistyped, or another API's constraint."""
    compared = 0
    for name in unknown:
        if len(name) > _MAX_NAME:
            continue
        if meant := [ours for ours in _ELSEWHERE.get(name, ()) if ours in known]:
            return name, f"this API has no such field; use {' or '.join(meant)}"
        compared += 1
        if compared <= _MAX_COMPARED and (close := difflib.get_close_matches(name, known, n=1, cutoff=0.8)):
            return name, f"there is no such field; did you mean {close[0]}?"
    return None


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
