"""A client of a daemon, in a separate process, whose controllers use all the CPU time that they get."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aicirt.contract.abi import Verb
from aicirt.contract.errors import AiciError
from aicirt.contract.messages import StepInput
from lab import ROOT
from lab.attacks.modules import LOOPS
from lab.inputs.vocabularies import vocabulary
from pyaici.client.runtime import Runtime

#: misbehaviour: `busy`: mid_process uses its whole limit in every step; `init`: aici_init takes a second,
#: again and again; `runaway`: mid_process never returns, and the client starts it again after each kill
KINDS = ("busy", "init", "runaway")
#: several connections of one owner call, in turn, each function that runs before the first step and never
#: returns; `module` is then the module of `lab.attacks.modules.slow_module`
INITS = "inits"
_CONNECTIONS = 4


@contextmanager
def offender(kind: str, socket: Path, module: str, rounds_per_ms: float, size: str) -> Iterator[None]:
    """Runs an offender, one of `KINDS` or `INITS`, against a daemon. Raises RuntimeError if it ends early."""
    words = [kind, str(socket), module, str(rounds_per_ms), size]
    command = [sys.executable, "-m", "lab.attacks.offender", json.dumps(words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise RuntimeError(f"the offender {kind!r} did not start")
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the offender {kind!r} ended with status {process.returncode}")
        process.kill()


def main(kind: str, socket: str, module: str, rounds_per_ms: str, size: str) -> None:
    """Runs until it is killed."""
    if kind == INITS:
        _inits(socket, module, size)
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


def _inits(socket: str, module: str, size: str) -> None:
    vocab, begun = vocabulary(size), threading.Barrier(_CONNECTIONS + 1)

    def connection(number: int) -> None:
        with Runtime(socket, owner=INITS) as runtime:
            runtime.register(vocab)
            begun.wait()
            for count in itertools.count(number):
                where = list(LOOPS)[count % len(LOOPS)]
                with suppress(AiciError):
                    runtime.instantiate(module, f"{where} {os.getpid()} {number} {count}", (1, 2, 3))

    threads = [threading.Thread(target=connection, args=(number,)) for number in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    begun.wait()
    print("ready", flush=True)
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
