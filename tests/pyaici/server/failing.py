"""`aici serve` with a tiny model that fails in every step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError
from aicirt.system.terminal import run_command
from pyaici.client.runtime import Runtime
from pyaici.server import models, program
from pyaici.server.models import ServedModel
from tests.pyaici.server.small import served, small_engine


def _load(settings: Any, runtime: Runtime, socket: Path) -> ServedModel:
    engine = small_engine(runtime)
    engine._runner._model.forward = None
    return served(engine)


models.load = _load

if __name__ == "__main__":
    sys.exit(run_command("aici serve", lambda: program.main(sys.argv[1:]), (AiciError,)))
