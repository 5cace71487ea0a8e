"""Engines in another process: vLLM behaves differently with Triton, which its V2 model runner needs."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from lab.system.waiting import PATIENCE
from lab.vllm.engines import ENVIRONMENT, Engines
from lab.vllm.shims import triton_interpreter


class RemoteFailure(AssertionError):
    """An exception in the other process, as text."""


class V2Engines:
    """Makes engines with the V2 model runner, all in one other process. Takes the options of `Engines`."""

    def __init__(self, model: Path) -> None:
        self._model = model
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        pipe, other_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(other_end, self._model), daemon=True)
        self._process.start()
        other_end.close()
        return pipe

    def run(self, options: dict[str, Any], function: Callable[..., Any], *args: Any) -> Any:
        """Returns the result of `function(llm, *args)` in the other process, with an engine of these options.

        The function must be defined in a module; arguments and result are pickled.
        """
        if self._pipe is None:
            self._pipe = self._start()
        self._pipe.send((function, args, options))
        try:
            failure, result = self._pipe.recv()
        except BaseException as error:
            assert self._process is not None
            self._process.kill()  # an answer that comes late would be taken for that of the next call
            self.close()
            if isinstance(error, EOFError):
                raise RemoteFailure("the process has ended") from None
            raise
        if failure is not None:
            raise RemoteFailure(failure)
        return result

    def close(self) -> None:
        """Ends the process, if it runs."""
        if self._pipe is None or self._process is None:
            return
        self._pipe.close()
        self._pipe = None
        self._process.join()


def _serve(pipe: Connection, model: Path) -> None:
    os.environ.update(ENVIRONMENT)
    triton_interpreter.install()
    # interpreting a kernel takes milliseconds: otherwise the time decides which drafts are checked
    from pyaici.engines.vllm.scheduling import driver

    driver.SECONDS = PATIENCE
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
