"""The controller parameters of a vLLM request, and what excludes a controller.

The parameters are keys of `extra_args`, or over HTTP of `vllm_xargs`. Requests that vLLM could run only
wrongly are refused before a controller starts: the constraint would be broken or never applied, or vLLM would
apply another parameter to wrong tokens.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyaici.engines.calls import KEYS, PREFIX, Call, read_call

#: environment variable: seconds for which suspended requests keep their blocks, unless they say otherwise
KEEP_BLOCKS = "AICI_KEEP_BLOCKS_S"
_KEEP_S, _MAX_KEEP_S = 5.0, 3600.0
#: key of the variables of a chat's template; vLLM's server has them from `chat_template_kwargs`
TEMPLATE = "aici_template"
#: AICI's name among vLLM's plugins
PLUGIN = "aici"
#: most sequences with which one request can begin
MAX_COPIES = 1024
_FLAGS = ("hold", "fork", "events", "counts", "after_thinking")
_OTHERS = ("copies", "keep", "calls", "name")
_KEYS = (*KEYS, *(f"{PREFIX}{name}" for name in (*_FLAGS, *_OTHERS)), TEMPLATE)

#: the reason why the plugin has left this vLLM unchanged; None if there is none
problem: str | None = None


@dataclass(frozen=True, slots=True)
class ControllerCall(Call):
    """The controller that a request names, its argument and its options.

    ::

        SamplingParams(extra_args={"aici_controller": "regex", "aici_arg": "[0-9]+"})
    """

    #: hold the output back until it is complete, so that the controller may backtrack
    hold: bool = False
    #: the request's `n` sequences belong to one controller: one runs, the others are for forks
    fork: bool = False
    #: outputs include events of each sequence (see the module `events`), so that the controller may backtrack
    events: bool = False
    #: events of sampled tokens include how many tokens the controller allowed
    counts: bool = False
    #: the controller begins when the model has finished its thinking
    after_thinking: bool = False
    #: with `fork`: so many sequences begin, as copies of the controller after it has processed the prompt
    copies: int = 1
    #: with `after_thinking`: variables of the chat's template, which reasoning parsers know, as JSON
    template: str = "{}"
    #: seconds for which its suspended sequences keep their blocks of the cache, if nobody else needs them
    keep: float = _KEEP_S

    @property
    def backtrack(self) -> bool:
        """Whether the controller may backtrack, because the client can handle removed tokens."""
        return self.hold or self.events

    @classmethod
    def from_extra_args(cls, extra_args: Mapping[str, Any] | None) -> ControllerCall | None:
        """Reads the keys of a request. Returns None if there is no controller.

        Raises ValueError for invalid keys or values.
        """
        ours = [key for key in extra_args or () if isinstance(key, str) and key.startswith(PREFIX)]
        if not ours:
            return None
        assert extra_args is not None
        call = read_call(extra_args, ours, _KEYS)
        flags = {name: _read_flag(f"aici_{name}", extra_args.get(f"aici_{name}", False)) for name in _FLAGS}
        if flags["hold"] and flags["events"]:
            raise ValueError("aici_hold and aici_events exclude each other: leave one of them out")
        if flags["counts"] and not flags["events"]:
            raise ValueError("aici_counts needs aici_events: set both, or leave aici_counts out")
        copies = _read_copies("aici_copies", extra_args.get("aici_copies", 1))
        if copies > 1 and not flags["fork"]:
            raise ValueError("aici_copies needs aici_fork: set both, or leave aici_copies out")
        if "aici_keep" in extra_args:
            keep = _read_seconds("aici_keep", extra_args["aici_keep"])
        else:
            variable = f"the environment variable {KEEP_BLOCKS} of vLLM's engine"
            keep = _read_seconds(variable, os.environ.get(KEEP_BLOCKS, _KEEP_S))
        template = _read_object(TEMPLATE, extra_args.get(TEMPLATE, "{}"))
        own: dict[str, Any] = {**flags, "copies": copies, "template": template, "keep": keep}
        return cls(call.controller, call.arg, call.owner, call.calls, call.name, **own)


def _read_flag(key: str, value: Any) -> bool:
    """Returns the value of a flag. vLLM's server accepts texts and numbers here, but no booleans.

    Raises ValueError.
    """
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    if isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    raise ValueError(f"{key} is {value!r}; it must be true or false")


def _read_seconds(name: str, value: Any) -> float:
    """Returns a number of seconds. Raises ValueError. HTTP requests may have texts, as variables do."""
    try:
        seconds = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds <= _MAX_KEEP_S:
        raise ValueError(f"{name} is {value!r}; it must be a number of seconds from 0 to {_MAX_KEEP_S:g}")
    return seconds


def _read_object(name: str, value: Any) -> str:
    """Returns an object as JSON. Raises ValueError. HTTP requests may have it as text."""
    try:
        found = json.loads(value) if isinstance(value, str) else value
        if isinstance(found, dict):
            return json.dumps(found)
    except (TypeError, ValueError, RecursionError):
        pass
    raise ValueError(f"{name} is {value!r:.64}; it must be an object, or its JSON text")


def _read_copies(key: str, value: Any) -> int:
    """Returns a number of sequences. Raises ValueError."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_COPIES:
        raise ValueError(f"{key} is {value!r}; it must be a number from 1 to {MAX_COPIES}")
    return value


def may_fork(extra_args: Mapping[str, Any] | None) -> bool:
    """Returns whether a request has `aici_fork`; False for an invalid value, which the engine refuses."""
    try:
        return _read_flag("aici_fork", (extra_args or {}).get("aici_fork", False))
    except ValueError:
        return False


def rows_refusal(vllm_config: Any) -> str | None:
    """Returns why workers of this engine cannot apply controllers' biases and temperatures.

    Returns None if they can.
    """
    speculative = vllm_config.speculative_config
    option = None
    if getattr(vllm_config.parallel_config, "enable_batch_sharded_sampling", False):
        option = "enable_batch_sharded_sampling"
    elif speculative is not None and getattr(speculative, "enable_adaptive_verification", False):
        option = "enable_adaptive_verification"
    if option is None:
        return None
    return (
        "the controller uses biases or a temperature, which do not work together with vLLM's "
        f"option {option}: start the engine without it"
    )


def drafts_refusal(vllm_config: Any, params: Any) -> str | None:
    """Returns why a request with these sampling parameters would end this engine; None if it would not."""
    drafts = vllm_config.speculative_config is not None and not vllm_config.use_v2_model_runner
    if params.top_k > 0 and drafts and vllm_config.device_config.device_type == "cpu":
        # in a pass without drafts, vLLM's model runner V1 takes the largest of no numbers
        return "top_k and drafts exclude each other on a CPU, where vLLM would fail: leave top_k out"
    return None


def request_refusal(params: Any, *, fork: bool) -> str | None:
    """Returns why a request with these sampling parameters cannot have a controller here; None if it can.

    `fork`: whether its controller may fork.
    """
    for name in ("prompt_logprobs", "prompt_logprob_token_ids"):
        # vLLM returns them together with the first sampled token, which a controller may discard
        if getattr(params, name, None) is not None:
            return f"a controller and {name} exclude each other: send two requests"
    if not fork:
        return None
    # vLLM begins a fork as a new request, with all tokens so far as its prompt
    for name in ("presence_penalty", "frequency_penalty", "bad_words", "repetition_detection"):
        if getattr(params, name, None):
            return (
                f"aici_fork and {name} exclude each other, because a fork would not count the tokens from "
                "before it: leave one of them out"
            )
    return None


def plugin_installed() -> bool:
    """Returns whether vLLM finds the plugin in this environment."""
    return bool(importlib.metadata.entry_points(group="vllm.general_plugins", name=PLUGIN))


def plugin_refusal() -> str | None:
    """Returns why the scheduler mixin is not active; None if there is no known reason.

    Without the mixin, requests would run as if they named no controller. With speculative decoding vLLM also
    silently leaves out installed logits processors; then only the mixin can refuse a request.
    """
    chosen = os.environ.get("VLLM_PLUGINS")
    if chosen is None or PLUGIN in chosen.split(","):
        return problem
    return (
        f"the environment variable VLLM_PLUGINS ({chosen!r}) leaves the AICI plugin out, which requests with "
        f"a controller need: add {PLUGIN} to it"
    )
