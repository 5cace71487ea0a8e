"""Engines in another process: vLLM behaves differently with Triton, which its V2 model runner needs."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.pyaici.engines.vllm.engines import ENVIRONMENT, Engines
from tests.pyaici.engines.vllm.shims import triton_interpreter

#: high, since interpreting a kernel takes milliseconds
_SECONDS = 400


class RemoteFailure(AssertionError):
    """An exception in the other process, as text."""


class V2Engines:
    """Makes engines with the V2 model runner, all in one other process. Takes the options of `Engines`."""

    def __init__(self, model: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(other_end, model), daemon=True)
        self._process.start()
        other_end.close()

    def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Returns the result of `function(llm, *args)` in the other process, with an engine of these options.

        The function must be defined in a module; arguments and result are pickled.
        """
        self._pipe.send((function, args, options))
        if not self._pipe.poll(_SECONDS):
            self.close()
            raise RemoteFailure(f"no answer within {_SECONDS} s")
        try:
            failure, result = self._pipe.recv()
        except EOFError:
            self._process.join()
            raise RemoteFailure(f"the process has ended: {self._process.exitcode}") from None
        if failure is not None:
            raise RemoteFailure(failure)
        return result

    def close(self) -> None:
        """Ends the process."""
        self._pipe.close()
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, model: Path) -> None:
    os.environ.update(ENVIRONMENT)
    triton_interpreter.install()
    engines = Engines(model)
    while True:
        try:
            function, args, options = pipe.recv()
        except EOFError:
            break
        try:
            pipe.send((None, function(engines(**options), *args)))
        except BaseException:
            pipe.send((traceback.format_exc(), None))
    engines.close()
