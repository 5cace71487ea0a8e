"""`aici serve` with a tiny model that fails in every step."""

from __future__ import annotations

import sys

from tests.pyaici.server.quick import run

if __name__ == "__main__":
    sys.exit(run(lambda engine: setattr(engine._runner._model, "forward", None)))
