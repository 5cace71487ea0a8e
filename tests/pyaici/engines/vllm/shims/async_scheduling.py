"""Lets vLLM schedule asynchronously on a CPU, as on a GPU: its CPU platform switches that off."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def async_scheduling_on_cpu() -> Iterator[None]:
    """While an engine is made: what `async_scheduling=True` asks for stays so."""
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.__dict__["check_and_update_config"]

    def check_and_update_config(cls: Any, config: Any) -> None:
        asked = config.scheduler_config.async_scheduling
        original.__func__(cls, config)
        config.scheduler_config.async_scheduling = asked

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    try:
        yield
    finally:
        CpuPlatform.check_and_update_config = original
