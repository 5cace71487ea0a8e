"""Routes `/tokenize`, `/detokenize`, `/tokenizer_info` and `/version`, as vLLM's server has them."""

from __future__ import annotations

import importlib.metadata
from functools import partial
from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from pyaici.server.apis.fields import MAX_MESSAGES, ChatMessage, StrictBody, TokenIds
from pyaici.server.apis.json_bodies import JsonRoute
from pyaici.server.http.access import Runner
from pyaici.server.http.errors import bad_request
from pyaici.server.http.sse import while_connected

if TYPE_CHECKING:
    from pyaici.server.models import ServedModel
    from pyaici.server.service import Service

router = APIRouter(tags=["tokens"], route_class=JsonRoute)


class TokenizeRequest(StrictBody):
    """A text or a chat."""

    model: str | None = Field(None, max_length=256)
    prompt: str | None = None
    messages: Annotated[list[ChatMessage], Field(max_length=MAX_MESSAGES, fail_fast=True)] | None = None
    return_token_strs: bool = Field(False, description="also return the text of each token")
    add_special_tokens: bool = Field(
        True, description="add the special tokens that the model expects around a prompt; not for chats"
    )
    add_generation_prompt: bool = Field(True, description="add the beginning of an answer to a chat")


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


class TokenizerInfo(BaseModel):
    """The names of special tokens, and the template of chats; null where there is none."""

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    chat_template: str | None
    model_max_length: int


class Version(BaseModel):
    """The version of this server."""

    version: str


@router.post("/tokenize")
async def tokenize(request: Request, body: TokenizeRequest, user: Runner) -> Tokenized:
    """Returns the tokens of a text, or of a chat in the model's template, as the model gets them."""
    service: Service = request.app.state.service
    return await while_connected(
        request, service.reading.read(user, partial(_tokenized, service.model, body))
    )


def _tokenized(model: ServedModel, body: TokenizeRequest) -> Tokenized:
    model.check_name(body.model)
    if (body.prompt is None) == (body.messages is None):
        raise bad_request("give either a prompt or messages", "prompt")
    if body.prompt is not None:
        tokens = model.encode(body.prompt, special=body.add_special_tokens)
    else:
        messages = [message.model_dump() for message in body.messages or ()]
        tokens = model.encode_chat(messages, answer=body.add_generation_prompt)
    return Tokenized(
        count=len(tokens),
        max_model_len=model.max_context,
        tokens=tokens,
        token_strs=[model.token_text(token) for token in tokens] if body.return_token_strs else None,
    )


@router.post("/detokenize")
async def detokenize(request: Request, body: DetokenizeRequest, user: Runner) -> Detokenized:
    """Returns the text of tokens; special tokens appear by name."""
    service: Service = request.app.state.service
    return await while_connected(request, service.reading.read(user, partial(_text, service.model, body)))


def _text(model: ServedModel, body: DetokenizeRequest) -> Detokenized:
    model.check_name(body.model)
    names, vocabulary = model.vocabulary.special_names, model.vocabulary
    pieces = []
    for token in model.encode(body.tokens, "tokens"):
        name = names.get(token)
        pieces.append(vocabulary.token_bytes(token) if name is None else name.encode())
    return Detokenized(prompt=b"".join(pieces).decode("utf-8", "replace"))


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request, user: Runner) -> TokenizerInfo:
    """Describes the tokenizer, so that clients such as lm-eval-harness need no copy of it."""
    model: ServedModel = request.app.state.service.model
    vocabulary = model.vocabulary
    bos, eos, pad = (
        None if token is None else vocabulary.special_names.get(token)
        for token in (vocabulary.bos, next(iter(vocabulary.eos), None), vocabulary.pad)
    )
    return TokenizerInfo(
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        chat_template=model.chat_template or None,
        model_max_length=model.max_context,
    )


@router.get("/version")
async def version() -> Version:
    """Returns the version of this server."""
    return Version(version=importlib.metadata.version("pyaici"))
