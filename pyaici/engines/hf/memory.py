"""How much memory the cache may take, where nobody has said so."""

from __future__ import annotations

from typing import Literal

import torch

from aicirt.system.resources import free_bytes
from pyaici.engines.hf.cache import MIN_TOKENS

#: The share of the free memory that the cache may take. The rest is for passes over long prompts, and on the
#: CPU for all other programs, which take more of it later.
SHARE = {"cpu": 0.5, "cuda": 0.8}


def cache_limit(asked: int | Literal["auto"] | None, device: torch.device, token_bytes: int) -> int | None:
    """Most tokens of a cache whose tokens take so many bytes each, on this device; None = no limit.

    "auto" is as many as there is memory for now. Raises ValueError for a number below `MIN_TOKENS`.
    """
    if asked is None:
        return None
    if asked == "auto":
        free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_bytes()
        share = SHARE.get(device.type, SHARE["cpu"])
        return max(MIN_TOKENS, int(free * share) // max(1, token_bytes))
    if asked < MIN_TOKENS:
        raise ValueError(f"cache_tokens is {asked}; it must be at least {MIN_TOKENS}")
    return asked
