"""Request fields that choose among the tokens, which several APIs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, Field

from pyaici.engines.sampling import MAX_BIAS, MAX_ENTRIES, MAX_PENALTY, MAX_REPETITION, Sampling
from pyaici.server.apis.fields import Seed, Temperature, TopK, TopP
from pyaici.server.http.errors import bad_request, check_text

if TYPE_CHECKING:
    from pyaici.server.models import ServedModel

Penalty = Annotated[float, Field(ge=-MAX_PENALTY, le=MAX_PENALTY)]
Bias = Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
Word = Annotated[str, Field(min_length=1, max_length=256)]
#: more than any logit is below the largest
MAX_SIGMA = 1e6
TokenId = Annotated[int, Field(ge=0, lt=1 << 31)]


class SamplingFields(BaseModel):
    """Fields of a request that choose among the tokens that its constraint allows."""

    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    seed: Seed | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="sample only tokens with at least this share of the best one's probability"
    )
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="sample only among tokens whose surprise is nearest to its mean, up to this probability",
    )
    top_n_sigma: Annotated[float, Field(ge=0, le=MAX_SIGMA)] | None = Field(
        None, description="sample only logits up to so many standard deviations below the largest; 0 = all"
    )
    presence_penalty: Penalty | None = Field(
        None, description="subtracted from the logits of tokens that the answer has"
    )
    frequency_penalty: Penalty | None = Field(
        None, description="subtracted from the logits of tokens that the answer has, once for each time"
    )
    repetition_penalty: Annotated[float, Field(gt=0, le=MAX_REPETITION)] | None = Field(
        None, description="divides positive logits of tokens that the prompt or the answer has"
    )
    logit_bias: Annotated[dict[str, Bias], Field(max_length=MAX_ENTRIES)] | None = Field(
        None, description="biases by token id, which are added to the logits"
    )
    min_tokens: Annotated[int, Field(ge=0, le=1 << 20)] | None = Field(
        None, description="the model does not end the answer before it has so many tokens"
    )
    ignore_eos: bool | None = Field(None, description="end-of-sequence tokens do not end the answer")
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_ENTRIES, fail_fast=True)] | None = Field(
        None, description="tokens that end the answer, in addition"
    )
    bad_words: Annotated[list[Word], Field(max_length=MAX_ENTRIES // 2, fail_fast=True)] | None = Field(
        None, description="texts that the answer must not contain, as the model's tokenizer cuts them"
    )


def sampling(body: SamplingFields, model: ServedModel) -> Sampling:
    """Returns the sampling options of a request, by default temperature 1. Raises ApiError."""
    biases = tuple((_token(name, model), bias) for name, bias in (body.logit_bias or {}).items())
    stops = tuple(body.stop_token_ids or ())
    for token in stops:
        _check(token, "stop_token_ids", model)
    words: list[tuple[int, ...]] = []
    for word in body.bad_words or ():
        check_text(word, "bad_words")
        words += model.tokens_of_word(word)
    try:
        return Sampling(
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=body.top_p or 1.0,
            top_k=body.top_k or 0,
            seed=body.seed,
            min_p=body.min_p or 0.0,
            typical_p=body.typical_p or 1.0,
            top_n_sigma=body.top_n_sigma or 0.0,
            presence_penalty=body.presence_penalty or 0.0,
            frequency_penalty=body.frequency_penalty or 0.0,
            repetition_penalty=body.repetition_penalty or 1.0,
            logit_bias=biases,
            min_tokens=body.min_tokens or 0,
            ignore_eos=bool(body.ignore_eos),
            stop_token_ids=stops,
            bad_words=tuple(words),
        )
    except ValueError as error:
        raise bad_request(str(error), "bad_words") from None


def _token(name: str, model: ServedModel) -> int:
    if not (name.isascii() and name.isdigit() and len(name) < 10):
        raise bad_request(f"logit_bias has {name[:20]!r}: its names must be token ids", "logit_bias")
    return _check(int(name), "logit_bias", model)


def _check(token: int, param: str, model: ServedModel) -> int:
    if token >= model.num_tokens:
        raise bad_request(f"{param} has token {token}; the model's are below {model.num_tokens}", param)
    return token
