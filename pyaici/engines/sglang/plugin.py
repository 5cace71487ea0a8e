"""The entry point that SGLang calls in each of its processes: adds the grammar backend `aici`.

This module imports nothing heavy and raises nothing: an installed plugin must not keep an engine from
starting. `--grammar-backend aici` chooses the backend. Otherwise SGLang runs as it does without AICI.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pyaici.engines.sglang import BACKEND, VERSIONS

if TYPE_CHECKING:
    from sglang.srt.constrained.base_grammar_backend import BaseGrammarBackend

log = logging.getLogger("sglang.aici")
#: AICI's name among SGLang's plugins
_PLUGIN = "aici"


def register() -> None:
    """Adds the backend to SGLang's, unless this SGLang has another version."""
    try:
        if (problem := version_problem(importlib.metadata.version("sglang"))) is not None:
            log.warning("%s", problem)
            return
        from sglang.srt.constrained.base_grammar_backend import register_grammar_backend
        from sglang.srt.server_args import GRAMMAR_BACKEND_CHOICES, add_grammar_backend_choices

        register_grammar_backend(BACKEND, create_backend)
        if BACKEND not in GRAMMAR_BACKEND_CHOICES:
            add_grammar_backend_choices([BACKEND])
    except Exception as error:
        log.warning("--grammar-backend %s cannot be used: %r", BACKEND, error)


def version_problem(version: str) -> str | None:
    """Returns why the backend cannot be used with this version of SGLang; None if it can."""
    from packaging.specifiers import SpecifierSet

    if SpecifierSet(VERSIONS).contains(version, prereleases=True):
        return None
    why = f"this is SGLang {version}, and AICI supports the versions {VERSIONS}"
    return f"--grammar-backend {BACKEND} cannot be used: {why}"


def plugin_installed() -> bool:
    """Returns whether SGLang finds the plugin in this environment."""
    return bool(importlib.metadata.entry_points(group="sglang.srt.plugins", name=_PLUGIN))


def plugin_refusal() -> str | None:
    """Returns why SGLang does not load the plugin; None if there is no known reason."""
    chosen = os.environ.get("SGLANG_PLUGINS")
    if not chosen or _PLUGIN in map(str.strip, chosen.split(",")):
        return None
    return f"the environment variable SGLANG_PLUGINS ({chosen!r}) leaves AICI out: add {_PLUGIN} to it"


def create_backend(
    server_args: Any, tokenizer: Any, vocab_size: int, eos_token_ids: Iterable[int] | None
) -> BaseGrammarBackend:
    """Returns the backend of a scheduler. SGLang calls this at its start.

    Raises ValueError for options of SGLang with which controllers would not be right.
    """
    from sglang.srt.runtime_context import get_parallel, get_serving

    from pyaici.engines.sglang.backend import AiciBackend

    parallel, serving = get_parallel(), get_serving()
    if parallel.attn_tp_size * parallel.attn_cp_size * parallel.pp_size > 1:
        # each rank would have a controller of its own, and one of them alone might fail
        raise ValueError(
            f"--grammar-backend {BACKEND} excludes tensor, context and pipeline parallelism: leave out "
            "--tp-size, --attn-cp-size and --pp-size, or use --dp-size instead"
        )
    for option in ("constrained_json_whitespace_pattern", "enable_strict_thinking"):
        if getattr(serving, option, None):
            raise ValueError(
                f"--grammar-backend {BACKEND} does not support --{option.replace('_', '-')}: leave it out"
            )
    return AiciBackend(server_args, tokenizer, vocab_size, eos_token_ids)
