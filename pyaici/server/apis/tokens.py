"""Routes `POST /tokenize`, `POST /detokenize` and `GET /version`, as vLLM's server has them."""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from pyaici.server.apis.fields import MAX_MESSAGES, ChatMessage, StrictBody, TokenIds
from pyaici.server.apis.json_bodies import JsonRoute
from pyaici.server.http.access import Runner
from pyaici.server.http.errors import bad_request

if TYPE_CHECKING:
    from pyaici.server.models import ServedModel

router = APIRouter(tags=["tokens"], route_class=JsonRoute)


class TokenizeRequest(StrictBody):
    """A text or a chat."""

    model: str | None = Field(None, max_length=256)
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(max_length=MAX_MESSAGES, fail_fast=True)] | None = None
    return_token_strs: bool = Field(False, description="also return the text of each token")


class Tokenized(BaseModel):
    """The tokens of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(StrictBody):
    """Tokens."""

    model: str | None = Field(None, max_length=256)
    tokens: TokenIds


class Detokenized(BaseModel):
    """The text of tokens. Bytes that are not UTF-8 become U+FFFD."""

    prompt: str


class Version(BaseModel):
    """The version of this server."""

    version: str


@router.post("/tokenize")
async def tokenize(request: Request, body: TokenizeRequest, user: Runner) -> Tokenized:
    """Returns the tokens of a text, or of a chat in the model's template, as the model gets them."""
    model: ServedModel = request.app.state.service.model
    model.check_name(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("give either a prompt or messages", "prompt")
    if body.prompt is not None:
        tokens = model.encode(body.prompt)
    else:
        tokens = model.encode_chat([message.model_dump() for message in body.messages or ()])
    return Tokenized(
        count=len(tokens),
        max_model_len=model.max_context,
        tokens=tokens,
        token_strs=[model.token_text(token) for token in tokens] if body.return_token_strs else None,
    )


@router.post("/detokenize")
async def detokenize(request: Request, body: DetokenizeRequest, user: Runner) -> Detokenized:
    """Returns the text of tokens; special tokens appear by name."""
    model: ServedModel = request.app.state.service.model
    model.check_name(body.model)
    names, vocabulary = model.vocabulary.special_names, model.vocabulary
    pieces = []
    for token in model.encode(body.tokens, "tokens"):
        name = names.get(token)
        pieces.append(vocabulary.token_bytes(token) if name is None else name.encode())
    return Detokenized(prompt=b"".join(pieces).decode("utf-8", "replace"))


@router.get("/version")
async def version() -> Version:
    """Returns the version of this server."""
    return Version(version=importlib.metadata.version("pyaici"))
