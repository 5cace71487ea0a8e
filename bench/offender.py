"""Another client of a daemon, in a process of its own, whose controllers take all the time that they get."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from aicirt.errors import AiciError
from bench.report import ROOT
from bench.vocabularies import vocabulary
from pyaici.runtime import Runtime
from pyaici.step import StepInput, Verb

#: what an offender does: mid_process that uses its whole time in every step; aici_init that takes a second,
#: again and again; mid_process that never ends, started again when it has been ended
KINDS = ("busy", "init", "runaway")


@contextmanager
def offender(kind: str, socket: Path, module: str, rounds_per_ms: float, size: str) -> Iterator[None]:
    """One of `KINDS` at work on the daemon at `socket`. Raises RuntimeError if it ends by itself."""
    words = [kind, str(socket), module, str(rounds_per_ms), size]
    command = [sys.executable, "-m", "bench.offender", json.dumps(words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the offender {kind!r} did not begin")
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the offender {kind!r} ended with status {process.returncode}")
        process.kill()


def main(kind: str, socket: str, module: str, rounds_per_ms: str, size: str) -> None:
    """Until it is killed."""
    per_ms = float(rounds_per_ms)
    with Runtime(socket) as runtime:
        runtime.register(vocabulary(size))
        print("ready", flush=True)
        if kind == "init":
            for number in itertools.count():
                runtime.free([runtime.instantiate(module, f"{900 * per_ms:.0f} 0 {os.getpid()} {number}")])
        rounds = f"{18 * per_ms:.0f}" if kind == "busy" else "-1"
        seq = runtime.instantiate(module, f"0 {rounds}")
        while True:
            step = runtime.begin_step([StepInput(seq)])
            try:
                answer = step.wait().mid[seq]
            except AiciError:
                continue
            if answer.verb == Verb.ERROR:
                seq = runtime.instantiate(module, f"0 {rounds}")
            elif answer.verb == Verb.LATE:
                time.sleep(0.001)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
