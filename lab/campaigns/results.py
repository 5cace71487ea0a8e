"""Random results of every callback, and random calls of the imports, next to a well-behaved request.

The argument of the guest determines its results: structs, addresses, lengths, verbs, rows, and edge cases of
numbers.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import fields
from pathlib import Path

from aicirt.contract.errors import AiciError, ControllerError, SpaceError
from lab.campaigns.campaign import Campaign
from lab.campaigns.hostile import guest
from lab.campaigns.script import random_script
from lab.campaigns.validating_engine import Engine, Request
from lab.campaigns.witness import Witness
from pyaici.client.arguments import ALL, Capabilities
from pyaici.client.runtime import Runtime
from pyaici.testing import small_vocabulary

#: requests in the same steps
_TOGETHER = 12
#: steps of a request, before another one replaces it
_STEPS = 14
#: low limits, so that waiting sequences end soon
_LIMITS = {"init_ms": 100, "max_suspended_steps": 4, "max_idle_steps": 6, "max_late_steps": 2}


def run(campaign: Campaign) -> None:
    """Runs the campaign. A case is a request, which returns several results. `done` counts the results."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        with Runtime(workers=1, limits=_LIMITS, store=store) as runtime:
            table = Table(campaign, runtime, Path(folder))
            table.play()
    campaign.figure("results", campaign.done, "results")
    campaign.figure("requests", table.requests, "requests")
    campaign.figure("per_second", campaign.done / campaign.elapsed, "results/s")
    campaign.figure("witnesses", table.witnesses, "requests")
    for outcome, count in sorted(campaign.outcomes.items()):
        campaign.figure(f"ended.{outcome.replace(' ', '_')}", count, "results")


class Table:
    """Changing requests next to a witness, all in one worker."""

    def __init__(self, campaign: Campaign, runtime: Runtime, folder: Path) -> None:
        vocabulary = small_vocabulary()
        runtime.register(vocabulary)
        self._campaign = campaign
        self._runtime = runtime
        self._engine = Engine(runtime, len(vocabulary.tokens))
        self._puppet, witness = (runtime.upload(guest(name, folder)).id for name in ("puppet", "witness"))
        self._witness = Witness(self._engine, witness)
        self._good = self._witness.start()
        #: number of the case -> (request, remaining steps)
        self._requests: dict[int, tuple[Request, int]] = {}
        #: cases since the witness began
        self._beside: list[int] = []
        self.requests = self.witnesses = 0

    def play(self) -> None:
        """Runs cases until there are enough results or the time is up."""
        campaign = self._campaign
        wanted = campaign.count or 0
        for case in itertools.count() if campaign.only is None else (campaign.only,):
            if campaign.over or (wanted and campaign.done >= wanted):
                break
            self._start(case)
            while len(self._requests) >= _TOGETHER:
                self._step()
        while self._requests:
            self._step()
        while not self._witness.done(self._good):
            self._step()
        self._judge_witness()
        health = self._runtime.health()
        if health["restarts"]:
            campaign.failed(-1, f"{health['restarts']} processes died")

    def script(self, case: int) -> bytes:
        """Returns the argument of a case."""
        return random_script(self._campaign.random(case), self._engine.vocab_size)

    def _abilities(self, case: int) -> Capabilities:
        """Returns the capabilities of the engine, mostly all."""
        rng = self._campaign.random(case, "engine")
        if rng.random() < 0.9:
            return ALL
        names = [field.name for field in fields(Capabilities) if field.name != "top_logprobs"]
        return Capabilities(
            **{name: rng.random() < 0.5 for name in names}, top_logprobs=rng.choice((0, 1, 1000))
        )

    def _start(self, case: int) -> None:
        self.requests += 1
        self._beside.append(case)
        try:
            request = Request(
                self._engine, self._puppet, self.script(case), capabilities=self._abilities(case)
            )
        except AiciError as error:
            self._judge(case, error)
            self._campaign.ended(f"start {error.code}")
            return
        self._requests[case] = request, _STEPS

    def _step(self) -> None:
        if self._witness.done(self._good):
            self._judge_witness()
            self._good = self._witness.start()
        for case, (request, left) in self._requests.items():
            if left == 2 and case % 2:
                request.finish()
            elif left == _STEPS - 2 and not case % 5:
                self._clone(case, request)
        engine, before = self._engine, self._engine.results
        engine.step([self._good, *(request for request, _ in self._requests.values())])
        self._campaign.ended("step", engine.results - before - len(self._good.live))
        for flaw in engine.flaws:
            self._campaign.failed(min(self._requests), f"one of the cases {sorted(self._requests)}: {flaw}")
        engine.flaws.clear()
        for case, (request, left) in list(self._requests.items()):
            self._requests[case] = request, left - 1
            if request.live and left > 1:
                continue
            for error in request.errors:
                self._judge(case, error)
                self._campaign.outcomes[error.code] += 1
            request.free()
            del self._requests[case]

    def _clone(self, case: int, request: Request) -> None:
        try:
            request.clone()
        except AiciError as error:
            self._campaign.failed(case, f"it cannot be cloned: {error!r}", self.script(case), ".script")

    def _judge(self, case: int, error: AiciError) -> None:
        """Records a failure unless the error is one of the controller, or rows are used up."""
        if not isinstance(error, ControllerError | SpaceError):
            self._campaign.failed(case, f"it ended with {error!r}", self.script(case), ".script")

    def _judge_witness(self) -> None:
        self.witnesses += 1
        difference = self._witness.difference(self._good)
        if difference is not None:
            cases = f"cases {self._beside[0]} to {self._beside[-1]}"
            self._campaign.failed(self._beside[0], f"beside {cases}: {difference}")
        self._good.free()
        self._beside = sorted(self._requests)
