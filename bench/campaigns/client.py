"""An engine in a process of its own, under load until it is told to stop; it outlives its daemons."""

from __future__ import annotations

import gc
import json
import os
import random
import select
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aicirt.contract.errors import RuntimeFailure
from bench.campaigns.ledger import make_vocabulary
from bench.campaigns.load import Load
from pyaici.client.runtime import Runtime

_REPORT_SECONDS = 0.1
#: as many as sequences could need
_DENSE_ROWS = 64


@dataclass(frozen=True)
class Task:
    """What a client does; it travels as JSON."""

    socket: str
    wasm: str
    #: see `make_vocabulary`
    vocab_size: int
    shift: int
    sequences: int
    seed: int
    churn: dict[str, float] = field(default_factory=dict)


def main(task: Task) -> int:
    """Until standard input ends. Writes a line of JSON for everything that is to be known."""
    before = _open_files()
    number = 0
    while not _told_to_stop():
        start = time.monotonic()
        try:
            runtime = Runtime(task.socket, num_dense=_DENSE_ROWS)
        except RuntimeFailure as error:
            _say("refused", code=error.code, message=error.message, start=start, end=time.monotonic())
            time.sleep(0.05)
            continue
        number += 1
        with runtime:
            try:
                vocabulary = make_vocabulary(task.vocab_size, task.shift)
                runtime.register(vocabulary)
                wasm = Path(task.wasm).read_bytes()
                module = runtime.upload(wasm).id
            except RuntimeFailure as error:
                _say("refused", code=error.code, message=error.message, start=start, end=time.monotonic())
                continue
            chance = random.Random(task.seed * 1000 + number)
            load = Load(runtime, module, vocabulary, task.sequences, chance, task.churn, wasm)
            _say("connected")
            _work(load)
            load.finish()
    gc.collect()  # what was closed while a cycle of Python objects held a view of it
    left = [entry.name for entry in Path("/dev/shm").iterdir() if f"-{os.getpid()}-" in entry.name]
    _say("stopped", descriptors=_open_files() - before, shm=left)
    return 0


def _work(load: Load) -> None:
    """Until it is told to stop, or the supervisor is gone and with it every sequence."""
    reported = 0.0
    while True:
        stopping = _told_to_stop()
        if not stopping:
            load.step()
        now = time.monotonic()
        orphaned = any(loss.code == "supervisor_died" for loss in load.losses)
        if load.losses or load.wrong or stopping or now - reported > _REPORT_SECONDS:
            reported = now
            losses = [asdict(loss) for loss in load.losses]
            _say("did", done=load.done, wrong=load.wrong, losses=losses, live=load.live, now=now)
            load.done, load.wrong, load.losses = Counter(), [], []
        if orphaned:
            load.count, load.churn = 0, {}
        if stopping or (not load.count and not load.live):
            return


def _told_to_stop() -> bool:
    return bool(select.select([0], [], [], 0)[0])


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _say(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


if __name__ == "__main__":
    sys.exit(main(Task(**json.loads(sys.argv[1]))))
