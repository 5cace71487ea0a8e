"""An engine in a separate process, under load until it is told to stop. It survives its daemons."""

from __future__ import annotations

import gc
import json
import random
import select
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aicirt.contract.errors import RuntimeFailure
from lab.campaigns.ledger import make_vocabulary
from lab.campaigns.load import DENSE_ROWS, Load
from pyaici.client.runtime import Runtime

_REPORT_SECONDS = 0.1


@dataclass(frozen=True)
class Task:
    """The configuration of a client, passed as JSON."""

    socket: str
    wasm: str
    #: see `make_vocabulary`
    vocab_size: int
    shift: int
    sequences: int
    seed: int
    churn: dict[str, float] = field(default_factory=dict)


def main(task: Task) -> int:
    """Runs until standard input ends. Writes events as lines of JSON."""
    before = _open_files()
    number = 0
    while not _stop_requested():
        start = time.monotonic()
        try:
            runtime = Runtime(task.socket, num_dense=DENSE_ROWS)
        except RuntimeFailure as error:
            _emit("refused", code=error.code, message=error.message, start=start, end=time.monotonic())
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
                _emit("refused", code=error.code, message=error.message, start=start, end=time.monotonic())
                continue
            chance = random.Random(task.seed * 1000 + number)
            load = Load(runtime, module, vocabulary, task.sequences, chance, task.churn, wasm)
            _emit("connected")
            _work(load)
            load.finish()
    gc.collect()  # closes memory that was still in use by a cycle of Python objects
    _emit("stopped", descriptors=_open_files() - before)
    return 0


def _work(load: Load) -> None:
    """Steps until it is told to stop, or the supervisor and all sequences are gone."""
    reported = 0.0
    while True:
        stopping = _stop_requested()
        if not stopping:
            load.step()
        now = time.monotonic()
        orphaned = any(loss.code == "supervisor_died" for loss in load.losses)
        if load.losses or load.wrong or stopping or now - reported > _REPORT_SECONDS:
            reported = now
            losses = [asdict(loss) for loss in load.losses]
            _emit("did", done=load.done, wrong=load.wrong, losses=losses, live=load.live, now=now)
            load.done, load.wrong, load.losses = Counter(), [], []
        if orphaned:
            load.count, load.churn = 0, {}
        if stopping or (not load.count and not load.live):
            return


def _stop_requested() -> bool:
    return bool(select.select([0], [], [], 0)[0])


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _emit(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


if __name__ == "__main__":
    sys.exit(main(Task(**json.loads(sys.argv[1]))))
