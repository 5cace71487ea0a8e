"""Has an engine work on one request, and shows it in the terminal: how the programs of all engines end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pyaici.engines.engine import Engine
    from pyaici.engines.request import Request


def generate(engine: Engine, request: Request, *more: Callable[[], RenderableType]) -> int:
    """The exit status: 0, or 1 if a sequence ended with an error. `more` makes what comes after the summary.

    Raises KeyboardInterrupt when it has shown what there was by then.
    """
    from pyaici.engines.terminal import Terminal

    number = engine.add(request)
    start = time.perf_counter()
    terminal = Terminal()
    try:
        with terminal:
            engine.run(on_event=terminal.show)
    finally:
        terminal.summary(engine.stats, time.perf_counter() - start, *(make() for make in more))
    return int(any(result.error is not None for result in engine.results(number)))
