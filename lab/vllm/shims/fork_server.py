"""Forks the processes of engines from a process that imports vLLM once: each would need 10 s for that.

Unlike a server, the process of the tests has threads, and cannot fork them itself.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from typing import Any

_PRELOADED = "lab.vllm.shims.preloaded"


class _Context:
    """A context of `multiprocessing` whose processes are forks with the present environment."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([_PRELOADED])

    def Process(self, *, target: Callable[..., None], name: str, kwargs: dict[str, Any]) -> Any:
        return self._context.Process(target=_run, name=name, args=(dict(os.environ), target), kwargs=kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _run(environment: dict[str, str], target: Callable[..., None], **kwargs: Any) -> None:
    os.environ.clear()
    # the CPU's platform asks for spawn
    os.environ.update(environment | {"VLLM_WORKER_MULTIPROC_METHOD": "fork"})
    target(**kwargs)


@contextlib.contextmanager
def engines_are_forked() -> Iterator[None]:
    """The processes of engines that are made in this context are forks."""
    from vllm.v1.engine import utils

    original = utils.get_mp_context
    utils.get_mp_context = _Context
    try:
        yield
    finally:
        utils.get_mp_context = original


def stop() -> None:
    """Ends the process that forks, for its memory, and so that its time counts. Its forks must have ended."""
    server: Any = forkserver._forkserver  # type: ignore[attr-defined]
    server._stop()
