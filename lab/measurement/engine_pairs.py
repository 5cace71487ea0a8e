"""Steps of two engines with the same model in turn, one under controllers and one without."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyaici.engines.batching.engine import Phase

if TYPE_CHECKING:
    from pyaici.engines.batching.engine import BatchingEngine
    from pyaici.engines.engine import GenerationResult, Request

#: steps of one engine in a row; the first one does not count, since the other engine has just run
_BLOCK = 8


class EnginePairs:
    """Times of steps with and without control, ms. The n-th steps of both make a pair.

    `times` are those of whole steps. `beside` is the time outside the forward pass: it has less noise, but
    does not show how the worker's use of memory and caches slows the forward pass down. On a GPU it includes
    the pass, which runs on after it was launched.
    """

    def __init__(self, controlled: BatchingEngine, free: BatchingEngine, requests: Sequence[Request]) -> None:
        """`requests`: with controllers, which the free engine leaves out. Their prompts fit into a step."""
        self._engines = controlled, free
        self._requests = requests, [replace(request, controller=None, arg=b"") for request in requests]
        self.times: tuple[list[float], list[float]] = ([], [])
        self.beside: tuple[list[float], list[float]] = ([], [])

    def clear(self) -> None:
        """Forgets all times."""
        for times in (*self.times, *self.beside):
            times.clear()

    def run(self, max_tokens: int) -> tuple[list[GenerationResult], list[GenerationResult]]:
        """Generates once with each engine. Returns the results of both."""
        numbers = [
            [engine.add(replace(request, max_tokens=max_tokens)) for request in requests]
            for engine, requests in zip(self._engines, self._requests, strict=True)
        ]
        gc.collect()
        gc.disable()
        for engine in self._engines:
            engine.step()  # reads the prompts
        number = 0
        while all(engine.busy for engine in self._engines):
            for which in (0, 1) if number % 2 else (1, 0):
                self._block(self._engines[which], self.times[which], self.beside[which])
            number += 1
        gc.enable()
        for engine in self._engines:
            engine.run()  # tells controllers about the end
        controlled, free = (
            [result for number in requests for result in engine.results(number)]
            for engine, requests in zip(self._engines, numbers, strict=True)
        )
        return controlled, free

    @staticmethod
    def _block(engine: BatchingEngine, times: list[float], beside: list[float]) -> None:
        for number in range(_BLOCK):
            start = time.perf_counter()
            engine.step()
            if number:
                taken = time.perf_counter() - start
                times.append(taken * 1e3)
                beside.append((taken - engine.stats.recent[-1][Phase.FORWARD]) * 1e3)
