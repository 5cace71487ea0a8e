"""Types of the objects that a client of `aici serve` sends and receives; docs/server.md describes them."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict


class Script(TypedDict):
    """A controller as a text in a request."""

    language: Literal["python", "javascript"]
    source: str
    name: NotRequired[str]
    #: any JSON
    arg: NotRequired[Any]


class RunFields(TypedDict, total=False):
    """The fields of `POST /v1/run`, without `stream` and `calls`."""

    controller: str
    controller_arg: Any
    script: Script
    prompt: str | list[int]
    messages: list[dict[str, str]]
    n: int
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    typical_p: float
    top_n_sigma: float
    seed: int
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    #: by token id
    logit_bias: dict[str, float]
    min_tokens: int
    ignore_eos: bool
    stop_token_ids: list[int]
    bad_words: list[str]
    logprobs: bool
    top_logprobs: int
    name: str
    details: bool


class Usage(TypedDict):
    """Numbers of tokens of all forks."""

    prompt_tokens: int
    sampled_tokens: int
    forced_tokens: int
    backtracked_tokens: int
    completion_tokens: int


class RunError(TypedDict):
    """Why a fork has failed."""

    code: str
    message: str


class ForkEnd(TypedDict):
    """How a fork has ended."""

    index: int
    #: index of the fork that it came from; None for a sequence of the request
    parent: int | None
    text: str
    finish_reason: str
    error: RunError | None
    log: str


class Timing(TypedDict):
    """Seconds from the start of the run."""

    first_token_s: float | None
    seconds: float | None


class _Run(TypedDict):
    id: str
    created: int
    model: str
    controller: str
    prompt_tokens: int
    vocab_size: int


class _Outcome(TypedDict):
    forks: list[ForkEnd]
    variables: dict[str, Any]
    usage: Usage
    timing: Timing


class RunStart(_Run):
    """The first event of a run."""

    object: Literal["initial-run"]


class RunStep(TypedDict):
    """The event of a step in which something happened."""

    object: Literal["run"]
    #: changes of forks: `index`, `text`, `pieces` and so on
    forks: list[dict[str, Any]]
    usage: Usage
    variables: NotRequired[dict[str, Any]]
    #: calls that were made, or have ended
    calls: NotRequired[list[dict[str, Any]]]
    #: with `details`: `step_s` and `control_s`
    timing: NotRequired[dict[str, float | None]]


class RunEnd(_Outcome):
    """The last event of a run."""

    object: Literal["run.end"]


class RunResult(_Run, _Outcome):
    """A whole run: what its first and its last event have."""

    object: Literal["run.result"]
    calls: NotRequired[list[dict[str, Any]]]


RunEvent = RunStart | RunStep | RunEnd


class Controller(TypedDict):
    """An uploaded controller. Scripts also have `language`, `script` and `interpreter`."""

    object: str
    id: str
    tags: list[str]
    owners: list[str]
    created: float
    size: int
    abi_version: int
    callbacks: list[str]
    language: NotRequired[str]
    script: NotRequired[str]
    interpreter: NotRequired[str]


class Bundled(TypedDict):
    """A controller that comes with the server."""

    object: str
    name: str
    description: str
    example_arg: str | None


class ControllerList(TypedDict):
    """The controllers that a user can find."""

    object: str
    data: list[Controller]
    bundled: list[Bundled]
    has_more: bool
