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

    context: str = Field("", max_length=1 << 20, description="what stands before the prefix")
    prefix: str = Field(
        max_length=_MAX_PREFIX, description="what the suggestion begins with, character for character"
    )
    max_new_tokens: int = Field(40, ge=0, le=4096, description="tokens behind those that cover the prefix")
    temperature: float = Field(0.5, ge=0, le=2, description="0 = the most likely")
    top_p: float = Field(
        0.92, gt=0, le=1, description="behind the prefix: the most likely of this probability"
    )
    top_k: int = Field(
        50, ge=0, le=1 << 20, description="behind the prefix: so many most likely tokens; 0 = all"
    )
    mode: Backend | None = Field(None, description="the backend, if the server shall not choose")
    lang: str | None = Field(
        None, pattern=r"^[A-Za-z0-9_+#.-]{1,32}$", description="the language, as it is written behind ```"
    )
    code_only: bool = Field(True, description="the suggestion ends where a code block would")
    sampler: Sampler = Field("exact", description="how the prefix is kept; pcas is biased, for comparison")
    seed: int | None = Field(
        0, ge=0, lt=1 << 63, description="the same one draws the same again; null = another"
    )
    heal_context: bool = Field(
        True, description="the end of the context may be tokenized anew, with the prefix"
    )
    max_evals: int = Field(
        256,
        ge=1,
        le=4096,
        description="most evaluations of the model for the prefix; then the best that is known",
    )
    max_trials: int = Field(
        64, ge=1, le=4096, description="most attempts, where an engine does not tell probabilities"
    )


class CertificateFields(BaseModel):
    """How the prefix was enforced, and how far the result can be from the model's own distribution."""

    sampler: Sampler
    model_evals: int | None = Field(description="texts that the model was asked about; null = not known")
    trials: int
    log_z: float | None = Field(
        description="logarithm of the probability of the prefix, or the middle of what it can be"
    )
    log_z_lower: float | None
    log_z_upper: float | None
    tv_bound: float | None = Field(description="total variation distance from exact; null = not known")
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
