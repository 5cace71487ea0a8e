"""Checks which engines and sampling parameters controllers cannot support.

Such requests are refused before a controller starts: the constraint would be broken or never applied, or vLLM
would apply the parameter to wrong tokens.
"""

from __future__ import annotations

import importlib.metadata
import os
from typing import Any

#: AICI's name among vLLM's plugins
PLUGIN = "aici"

#: the reason why the plugin has left this vLLM unchanged; None if there is none
problem: str | None = None


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
