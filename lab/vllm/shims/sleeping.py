"""Has vLLM's processes sleep while they wait for each other on a CPU, so that the model gets the processor.

A process that reads messages of another one spins for a second after each, since on a GPU the model needs no
processor. Here an engine would use one as long as its worker computes, and the worker between the steps.
"""

from __future__ import annotations

import time

#: a step of the smallest model takes ten times as long
_SECONDS = 0.0005


def sleep_while_waiting() -> None:
    """Has this process, and those that it forks, sleep between two looks for a message."""
    from vllm.distributed.device_communicators import shm_broadcast

    shm_broadcast.sched_yield = lambda: time.sleep(_SECONDS)
