"""Enables vLLM's asynchronous scheduling on a CPU, where its platform disables it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def async_scheduling_on_cpu() -> Iterator[None]:
    """Keeps the value of `async_scheduling` for engines that are made in this context."""
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.__dict__["check_and_update_config"]

    def check_and_update_config(cls: Any, config: Any) -> None:
        requested = config.scheduler_config.async_scheduling
        original.__func__(cls, config)
        config.scheduler_config.async_scheduling = requested

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    try:
        yield
    finally:
        CpuPlatform.check_and_update_config = original
