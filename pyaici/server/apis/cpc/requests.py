"""Requests and responses of character-prefix completion."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from pyaici.server.apis.fields import StrictBody

#: the backend: the model here, or one of a server of Ollama
Backend = Literal["pcas", "ollama"]
Sampler = Literal["exact", "enumerate", "pcas", "heal"]
_MAX_PREFIX = 256


class CpcRequest(StrictBody):
    """A text up to the cursor, in two parts: context and prefix."""

    context: str = Field("", max_length=1 << 20, description="text before the prefix")
    prefix: str = Field(max_length=_MAX_PREFIX, description="characters that the suggestion begins with")
    max_new_tokens: int = Field(
        40, ge=0, le=4096, description="most tokens after those that cover the prefix"
    )
    temperature: float = Field(0.5, ge=0, le=2, description="0 = the most likely text")
    top_p: float = Field(
        0.92,
        gt=0,
        le=1,
        description="after the prefix: sample only among the most likely tokens with this total probability",
    )
    top_k: int = Field(
        50,
        ge=0,
        le=1 << 20,
        description="after the prefix: sample only among so many most likely tokens; 0 = all",
    )
    mode: Backend | None = Field(None, description="the backend; default: that of the server")
    lang: str | None = Field(
        None, pattern=r"^[A-Za-z0-9_+#.-]{1,32}$", description="the language, as written after ```"
    )
    code_only: bool = Field(True, description="end the suggestion where a code block would end")
    sampler: Sampler = Field(
        "exact", description="sampler that enforces the prefix; pcas is biased, for comparison"
    )
    seed: int | None = Field(
        0, ge=0, lt=1 << 63, description="makes a suggestion repeatable; null = a random seed"
    )
    heal_context: bool = Field(
        True, description="allow the end of the context to be tokenized again, together with the prefix"
    )
    max_evals: int = Field(
        256,
        ge=1,
        le=4096,
        description="most model evaluations for the prefix; after them, the sampler draws from what is known",
    )
    max_trials: int = Field(
        64, ge=1, le=4096, description="most attempts, for an engine that does not report probabilities"
    )


class CertificateFields(BaseModel):
    """How the prefix was enforced, and how far the result can be from the model's own distribution."""

    sampler: Sampler
    model_evals: int | None = Field(description="number of texts that the model evaluated; null = unknown")
    trials: int
    log_z: float | None = Field(
        description="logarithm of the probability of the prefix, or the middle of its bounds"
    )
    log_z_lower: float | None
    log_z_upper: float | None
    tv_bound: float | None = Field(
        description="upper bound of the total variation distance from exact; null = unknown"
    )
    approximate: bool


class CpcResponse(BaseModel):
    """A suggestion. It begins with the prefix, or is empty if no text can."""

    suggestion: str
    calls_prefix: int = Field(description="model calls for the prefix")
    backend: Backend
    debug: list[str] | None
    certificate: CertificateFields | None = None
    #: only for Ollama: whether the model began with the prefix by itself
    adhered: bool | None = None
    tokens_emitted: int | None = None
    ms_total: float | None = None
