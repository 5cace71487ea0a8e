"""A daemon with two owners, one of which takes as much memory as it can get.

``python -m tests.pyaici.client.memory_attack FOLDER GUEST [LIMIT=NUMBER...]`` prints the results of both
owners as JSON. GUEST is the compiled tests/guests/memory.c.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError
from lab.campaigns.validating_engine import Engine, Request
from lab.system.waiting import wait_until
from pyaici.bundled import LANGUAGES
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime
from pyaici.scripting.script import Script, interpreter_file
from pyaici.testing import small_vocabulary

MIB = 1 << 20
#: makes as many forks as a request may have; each fills its memory
SCRIPT = """
from aici import fork, gen
async def main():
    await fork(16)
    kept = []
    while True:
        kept.append(b"x" * 8000000)
        await gen(max_tokens=1)
"""
#: a well-behaved script whose masks depend on what it keeps in memory
WITNESS = """
from aici import gen, regex
async def main():
    kept = []
    for number in range(1000):
        kept.append(str(number) * 100)
        await gen(regex("[0-9]"), max_tokens=1)
"""
SCRIPTS, STEPS = 6, 40
#: arguments of the guest; the attacks run one after another
ARGS = ("mid 8", "pre 8", "prompt 40", "init 40", "copy 30", "fork 8", "scatter 60")


class Setup:
    """A daemon, and a client for each of the two owners."""

    def __init__(self, daemon: Daemon, good: Runtime, bad: Runtime, guest: Path) -> None:
        vocabulary = small_vocabulary()
        self.daemon = daemon
        self.engines = [Engine(runtime, len(vocabulary.tokens)) for runtime in (good, bad)]
        python = next(language for language in LANGUAGES if language.name == "Python")
        for runtime in (good, bad):
            runtime.register(vocabulary)
            interpreter = runtime.upload(interpreter_file(python)).id
        self.witness = good.upload_script(Script("witness", python, WITNESS).stored(interpreter)).id
        self.script = bad.upload_script(Script("greedy", python, SCRIPT).stored(interpreter)).id
        self.guest = bad.upload(guest).id
        self.errors: Counter[str] = Counter()
        self.peak = 0
        self.good = Request(self.engines[0], self.witness)

    def attack(self, module: str, args: list[str], steps: int) -> None:
        requests = []
        for arg in args:
            try:
                requests.append(Request(self.engines[1], module, arg))
            except AiciError as error:
                self.errors[error.code] += 1
        for _ in range(steps):
            self.engines[0].step([self.good])
            self.engines[1].step(requests)
            self.peak = max(self.peak, self.resident())
        self.errors.update(error.code for request in requests for error in request.errors)
        for request in requests:
            request.free()

    def resident(self) -> int:
        """Returns the worker's resident memory in bytes, including shared pages."""
        (worker,) = self.health()["workers"]
        return int(worker.get("rss_kib", 0)) << 10

    def health(self) -> dict[str, Any]:
        return self.engines[0].runtime.health()


def main(folder: Path, guest: Path, limits: dict[str, float]) -> dict[str, Any]:
    with (
        Daemon(workers=1, limits=limits, store=folder / "store") as daemon,
        Runtime(daemon.socket_path, owner="good") as good,
        Runtime(daemon.socket_path, owner="bad") as bad,
    ):
        setup = Setup(daemon, good, bad, guest)
        setup.engines[0].step([setup.good])
        before = setup.resident()
        setup.attack(setup.script, [""] * SCRIPTS, STEPS)
        scripts = setup.peak
        for arg in ARGS:
            setup.attack(setup.guest, [f"{arg} {number}" for number in range(12)], 8)
        # guests are freed when the worker has nothing else to do
        wait_until(lambda: setup.resident() < before + 16 * MIB, 0.1)
        health = setup.health()
        return {
            "before_mib": before // MIB,
            "scripts_peak_mib": scripts // MIB,
            "peak_mib": setup.peak // MIB,
            "memory": health["workers"][0]["memory"],
            "builder": health["builder"]["memory"],
            "restarts": health["restarts"],
            "errors": dict(setup.errors),
            "good_errors": [str(error) for error in setup.good.errors],
            "good_answers": len(setup.good.answers),
            "good_steps": len(setup.engines[0].waits),
            "flaws": [flaw for engine in setup.engines for flaw in engine.flaws],
        }


if __name__ == "__main__":
    overrides = {name: float(value) for name, _, value in (text.partition("=") for text in sys.argv[3:])}
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), overrides)))
