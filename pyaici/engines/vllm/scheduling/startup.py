"""The setup for the first request of a scheduler with a controller: its vocabulary, and its driver."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from aicirt.contract.abi import LOOK_NEVER
from aicirt.contract.errors import VocabularyError
from pyaici.client.runtime import rows_for
from pyaici.engines.connection import Connection, tokenizer_vocabulary
from pyaici.engines.vllm.scheduling.driver import CAPABILITIES, MAX_DRAFT_COPIES, ControllerDriver

if TYPE_CHECKING:
    from pyaici.client.runtime import Runtime
    from pyaici.tokens import Vocabulary


def engine_vocabulary(vllm_config: Any) -> Vocabulary:
    """Returns the vocabulary of the model that vLLM runs, as wide as its logits.

    Raises VocabularyError if the bytes of its tokens cannot be determined.
    """
    from vllm.tokenizers import cached_tokenizer_from_config

    model = vllm_config.model_config
    tokenizer = cached_tokenizer_from_config(model)
    if tokenizer is None:
        raise VocabularyError("controllers need a tokenizer: start vLLM without skip_tokenizer_init")
    eos = model.try_get_generation_config().get("eos_token_id")
    return tokenizer_vocabulary(tokenizer, model.tokenizer, model.get_vocab_size(), eos)


def let_processes_sleep() -> None:
    """Has vLLM's engine processes wake a scheduler that sleeps when a message comes to them. Idempotent.

    Not those of ranks that run each step together, which must not sleep.
    """
    from vllm.v1.engine.core import DPEngineCoreProc, EngineCoreProc

    process = EngineCoreProc._process_input_queue
    if hasattr(process, "__wrapped__"):
        return

    @functools.wraps(process)
    def process_input_queue(core: Any) -> None:
        requests = getattr(core.scheduler, "_aici", None)
        if requests is not None and not requests.can_be_woken and not isinstance(core, DPEngineCoreProc):
            put = core.input_queue.put

            def put_and_wake(*args: Any, **keywords: Any) -> None:
                put(*args, **keywords)
                requests.end_sleep()

            core.input_queue.put = put_and_wake  # `put_nowait` calls it, too
            requests.can_be_woken = True
        process(core)

    EngineCoreProc._process_input_queue = process_input_queue


def make_driver(
    scheduler: Any, socket: str | None, make_runtime: Callable[..., Runtime], *, rows: bool
) -> ControllerDriver:
    """Returns the driver of a scheduler's controllers. `rows`: workers can apply biases and temperatures."""
    let_processes_sleep()
    config, manager = scheduler.vllm_config, scheduler.structured_output_manager
    running = config.scheduler_config.max_num_seqs
    if manager._grammar_bitmask is None:
        # every backend of vLLM allocates this at its first request
        masks = running * (1 + config.num_speculative_tokens)
        words = (config.model_config.get_vocab_size() + 31) // 32
        manager._grammar_bitmask = torch.full((masks, words), -1, dtype=torch.int32)
    copies = min(running * config.num_speculative_tokens, MAX_DRAFT_COPIES)
    connection = Connection(
        functools.partial(engine_vocabulary, config),
        socket=socket,
        num_rows=rows_for(running + copies),
        make_runtime=make_runtime,
    )
    capabilities = (
        CAPABILITIES if rows else replace(CAPABILITIES, logprobs=False, top_logprobs=0, look=LOOK_NEVER)
    )
    return ControllerDriver(connection, most_copies=copies, capabilities=capabilities)
