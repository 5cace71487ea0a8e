"""How this package starts processes of its own."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[1])
#: what compiling and `aici_init` give way to steps: beside a step that wants their processor they get a tenth
_BACKGROUND_NICE = 10


def child_environment() -> dict[str, str]:
    """The child finds this very package, also where it is not installed, and its libraries do not
    start threads or reserve memory for them."""
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([_ROOT, inherited]) if inherited else _ROOT
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **one_thread, "PYTHONPATH": path}


def stay_in_background() -> None:
    """This process does what somebody waits for once; steps, for which a GPU waits, come before it."""
    os.setpriority(os.PRIO_PROCESS, 0, max(os.getpriority(os.PRIO_PROCESS, 0), _BACKGROUND_NICE))
