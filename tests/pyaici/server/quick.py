"""`aici serve` with a tiny model whose tokens are bytes: it starts fast and answers at once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError
from aicirt.system.terminal import run_command
from pyaici import HfEngine
from pyaici.client.runtime import Runtime
from pyaici.server import models, serve
from pyaici.server.models import ServedModel
from tests.pyaici.server.small import served, small_engine


def run(prepare: Callable[[HfEngine], object] = lambda engine: None) -> int:
    """Serves with the options of the command line. `prepare` changes the engine before it is used."""

    def load(settings: Any, runtime: Runtime, socket: Path) -> ServedModel:
        engine = small_engine(runtime)
        prepare(engine)
        return served(engine)

    models.load = load
    return run_command("aici serve", lambda: serve.main(sys.argv[1:]), (AiciError,))


if __name__ == "__main__":
    sys.exit(run())
