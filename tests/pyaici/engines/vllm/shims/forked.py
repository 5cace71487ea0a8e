"""Starts vLLM's processes on a CPU by fork, as they start on a GPU, and runs vLLM's OpenAI server so.

    python -m tests.pyaici.engines.vllm.shims.forked ARGUMENTS OF THE SERVER

On a CPU vLLM spawns them, and each of them imports vLLM again: 12 s of a processor.
"""

from __future__ import annotations

import contextlib
import os
import runpy
from collections.abc import Iterator
from typing import Any

_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"


@contextlib.contextmanager
def forked_processes() -> Iterator[None]:
    """Engines that are made in this context fork their processes."""
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.__dict__["check_and_update_config"]

    def check_and_update_config(cls: Any, config: Any) -> None:
        original.__func__(cls, config)
        os.environ[_METHOD] = "fork"

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    try:
        yield
    finally:
        CpuPlatform.check_and_update_config = original


if __name__ == "__main__":
    os.environ[_METHOD] = "fork"  # otherwise the server itself asks for spawn
    with forked_processes():
        runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__", alter_sys=True)
