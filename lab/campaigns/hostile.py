"""More than two hundred hostile controllers, each next to a well-behaved request in the same worker."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from wasmtime import wat2wasm

from aicirt.contract.errors import AiciError
from aicirt.settings import WorkerConfig
from aicirt.system.pace import pace
from aicirt.system.silence import LOOK_SECONDS, Silence
from lab import ROOT
from lab.campaigns.campaign import Campaign
from lab.campaigns.stranger import GOES_ON, STOPS, Stranger
from lab.campaigns.strangers import STRANGERS
from lab.campaigns.validating_engine import Engine, Request
from lab.campaigns.witness import Witness
from lab.measurement.timing import percentile
from pyaici.client.runtime import Runtime
from pyaici.testing import small_vocabulary
from pyaici.toolchain import build_controller

#: lower than the defaults where reaching a limit takes long
LIMITS = {
    "init_ms": round(150 * pace()),
    "max_suspended_steps": 5,
    "max_idle_steps": 8,
    "max_late_steps": 3,
    "snapshot_bytes": 64 << 20,
    "owner_memory_bytes": 300 << 20,
}
#: steps within which a hostile request must end. A late one gets more: it runs only in the CPU time that
#: these very short steps leave, so the number of steps until its time is used up depends on the machine
_STEPS = 24
#: seconds for which the daemon may work, or do nothing, until a late request ends and a freed one is gone
_PATIENCE = 20.0


def run(campaign: Campaign) -> None:
    """Runs the campaign. A case is a row of the table, which repeats from its beginning."""
    waits: dict[str, list[float]] = {}
    with arena() as place:
        for case in campaign.cases(len(STRANGERS)):
            stranger = STRANGERS[case % len(STRANGERS)]
            met = place.meet(stranger)
            campaign.ended(met.outcome)
            waits.setdefault(stranger.name, []).extend(met.waits)
            for problem in met.problems:
                campaign.failed(case, f"{stranger.name} ({stranger.does}): {problem}")
    worst = sorted(waits, key=lambda name: -percentile(waits[name], 99))
    campaign.figure("kinds", len(waits), "kinds")
    campaign.figure("errors", len({o for o in campaign.outcomes if o not in (GOES_ON, STOPS)}), "types")
    campaign.figure("witness_late", place.witness.late, "steps")
    for name in worst[:5]:
        campaign.figure(f"step_p99_ms.{name}", percentile(waits[name], 99), "ms")


@dataclass
class Meeting:
    """The outcome of a hostile controller, and its effects on others."""

    outcome: str
    error: AiciError | None = None
    #: broken promises
    problems: list[str] = field(default_factory=list)
    #: ms that the engine waited in each step
    waits: list[float] = field(default_factory=list)


class Arena:
    """A worker with a witness, for one hostile controller after the other."""

    def __init__(self, runtime: Runtime, folder: Path) -> None:
        vocabulary = small_vocabulary()
        runtime.register(vocabulary)
        self.runtime = runtime
        self._words = asdict(WorkerConfig.with_overrides(LIMITS, runtime.health()["pace"]).limits)
        self.engine = Engine(runtime, len(vocabulary.tokens))
        self._hostile, witness = (runtime.upload(guest(name, folder)).id for name in ("hostile", "witness"))
        self.witness = Witness(self.engine, witness)
        self._pids = self._processes()

    def meet(self, stranger: Stranger) -> Meeting:
        """Runs a hostile controller next to the witness, to its end or for some steps; checks the effects."""
        good = self.witness.start()
        self.engine.step([good])
        begun = len(self.engine.waits)
        strangers, error = self._start(stranger)
        for _ in range(_STEPS):
            self.engine.step([good, *strangers])
        daemon, looked = Silence(self._pids[0], family=True), -math.inf
        while any(request.late for request in strangers) and not any(it.errors for it in strangers):
            if time.monotonic() >= looked + LOOK_SECONDS:
                looked = time.monotonic()
                if daemon.longer_than(_PATIENCE):
                    break
            self.engine.step([good, *strangers])
        while not self.witness.done(good):
            self.engine.step([good])
        met = self._judge(stranger, strangers, error)
        met.waits = self.engine.waits[begun:]
        met.problems += self._damage(good)
        for request in (good, *strangers):
            request.free()
        met.problems += self._remains()
        return met

    def _start(self, stranger: Stranger) -> tuple[list[Request], AiciError | None]:
        started: list[Request] = []
        try:
            module = self._hostile
            if stranger.module:
                text = stranger.module
                module = self.runtime.upload(text if isinstance(text, bytes) else bytes(wat2wasm(text))).id
            for number in range(stranger.times):
                words = f"{stranger.arg} {number}" if stranger.times > 1 else stranger.arg
                started.append(Request(self.engine, module, words.encode().ljust(stranger.size, b"-")))
        except AiciError as error:
            return started, error
        return started, None

    def _judge(self, stranger: Stranger, requests: list[Request], error: AiciError | None) -> Meeting:
        """Compares the outcome with the expected one."""
        errors = [error] if error is not None else [e for request in requests for e in request.errors]
        if errors:
            met = Meeting(errors[0].code, errors[0])
        else:
            met = Meeting(GOES_ON if any(request.live for request in requests) else STOPS)
        allowed, words = _outcomes(stranger.outcome), stranger.words.format(**self._words)
        for found in errors:
            if found.code not in allowed or words not in str(found):
                met.problems.append(f"it ended with {found!r} instead of {stranger.outcome} {words!r}")
                break
        if not errors and met.outcome not in allowed:
            met.problems.append(f"it {met.outcome} instead of ending with {stranger.outcome}")
        return met

    def _damage(self, good: Request) -> list[str]:
        flaws, self.engine.flaws = self.engine.flaws, []
        problems = [f"the engine received: {flaw}" for flaw in flaws]
        if difference := self.witness.difference(good):
            problems.append(difference)
        return problems

    def _remains(self) -> list[str]:
        """Returns problems with what is left: sequences, replaced processes."""
        daemon = Silence(self._pids[0], family=True)
        while any(worker.get("sequences", 1) for worker in self.runtime.health()["workers"]):
            if daemon.longer_than(_PATIENCE):
                return ["sequences are left in the worker"]
            time.sleep(0.005)
        problems = []
        if self._processes() != self._pids:
            problems.append("a process has been replaced")
            self._pids = self._processes()
        return problems

    def _processes(self) -> list[int]:
        health = self.runtime.health()
        return [health["pid"], health["builder"]["pid"], *(worker["pid"] for worker in health["workers"])]


@contextmanager
def arena() -> Iterator[Arena]:
    """Runs a daemon with one worker."""
    with tempfile.TemporaryDirectory() as folder:
        with Runtime(workers=1, limits=LIMITS, store=Path(folder) / "store") as runtime:
            yield Arena(runtime, Path(folder))


def guest(name: str, folder: Path) -> Path:
    """Compiles a controller of ``lab/guests``; returns its path."""
    return build_controller(ROOT / "lab" / "guests" / f"{name}.c", folder / f"{name}.wasm").path


@cache
def _outcomes(text: str) -> frozenset[str]:
    """Splits a text such as ``"late goes on"`` into outcomes."""
    whole = {outcome for outcome in (GOES_ON, STOPS) if outcome in text}
    return frozenset(whole | set(text.replace(GOES_ON, "").replace(STOPS, "").split()))
