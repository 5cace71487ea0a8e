"""Checks whether a request can continue from one of its earlier tokens with the cache blocks that it has."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.single_type_kv_cache_manager import (
    ChunkedLocalAttentionManager,
    CrossAttentionManager,
    FullAttentionManager,
    MambaManager,
    SinkFullAttentionManager,
    SlidingWindowManager,
)


def continues_from(scheduler: Any, request: Any, computed: int) -> bool:
    """Returns whether the request's blocks hold all that the token after the first `computed` tokens needs.

    Does not check whether other requests may share the blocks. `request` holds blocks; its counters are those
    after a pass.
    """
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    return computed > 0 and all(_holds(manager, request, computed) for manager in managers)


def _holds(manager: Any, request: Any, computed: int) -> bool:
    """Returns whether the blocks of one group of layers hold all that is needed."""
    # exact types: subclasses free or overwrite blocks in ways of their own
    kind = type(manager)
    if kind in (FullAttentionManager, SinkFullAttentionManager, CrossAttentionManager):
        return True
    if kind in (SlidingWindowManager, ChunkedLocalAttentionManager):
        # vLLM has freed the blocks before the window of the last token
        blocks = manager.req_to_blocks[request.request_id]
        first = manager.get_num_skipped_tokens(computed) // manager.block_size
        end = -(-computed // manager.block_size)
        return not any(block.is_null for block in blocks[first:end])
    if kind is MambaManager:
        # There is one state: the one after the last token, or after those that a pass in progress computes.
        # With prefix caching or drafts vLLM keeps several, in places that depend on the last pass.
        return (
            manager.mamba_cache_mode == "none"
            and not manager.num_speculative_blocks
            and not request.num_in_flight_tokens
            and computed == request.num_computed_tokens
        )
    return False
