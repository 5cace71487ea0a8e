"""Damaged modules, each processed like an upload, and run if it is accepted.

The campaign changes bytes, sections, entries and code of real and small controllers at random. All modules
pass check, rewriting, compiler and a worker in processes that may die. Some of them, and all on which a
process died, also go to a real daemon with a well-behaved request.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

from aicirt.contract.errors import ControllerError, ModuleError
from lab.campaigns.campaign import Campaign
from lab.campaigns.crowd import Crowd
from lab.campaigns.hostile import arena
from lab.campaigns.sacrifice import ARGUMENT, case
from lab.campaigns.seeds import seed_modules
from lab.campaigns.stranger import GOES_ON, STOPS, Stranger
from lab.measurement.timing import percentile

#: one in this many refused modules, and accepted modules, also goes to the daemon
_REFUSED, _TAKEN = 300, 60
_REFUSALS = ("check", "compile")


def run(campaign: Campaign) -> None:
    """Runs the campaign. A case is a module."""
    crowd = Crowd(campaign)
    seeds = seed_modules()
    with arena() as place:
        threads = [threading.Thread(target=crowd.work) for _ in range(crowd.width)]
        for thread in threads:
            thread.start()
        uploads: Counter[str] = Counter()
        for number, result in crowd.results():
            end = result["end"]
            campaign.ended(end)
            if end.startswith("died"):
                print(f"case {number} of seed {campaign.seed} {end}", file=sys.stderr)
            if flaw := result.get("flaw"):
                campaign.failed(number, flaw, case("modules", campaign.seed, number, seeds)[0], ".wasm")
            if not _chosen(campaign, number, end):
                continue
            wasm, done = case("modules", campaign.seed, number, seeds)
            met = place.meet(Stranger(f"case {number}", ", ".join(done), _ANY, arg=ARGUMENT, module=wasm))
            refused = isinstance(met.error, ModuleError)
            uploads["refused" if refused else "taken"] += 1
            if refused != (end in _REFUSALS) and not end.startswith("died"):
                met.problems.append(f"it ended with {met.outcome}, but with {end} in the other process")
            for problem in met.problems:
                campaign.failed(number, f"{', '.join(done)}: {problem}", wasm, ".wasm")
        for thread in threads:
            thread.join()
    campaign.figure("modules", campaign.done, "modules")
    campaign.figure("per_second", campaign.done / campaign.elapsed, "modules/s")
    campaign.figure("refused", sum(campaign.outcomes[name] for name in _REFUSALS), "modules")
    campaign.figure(
        "taken", sum(n for name, n in campaign.outcomes.items() if name not in _REFUSALS), "modules"
    )
    for name, count in sorted(campaign.outcomes.items()):
        campaign.figure(f"ended.{name.replace(' ', '_')}", count, "modules")
    campaign.figure("through_daemon.refused", uploads["refused"], "modules")
    campaign.figure("through_daemon.taken", uploads["taken"], "modules")
    for name, times in crowd.times.items():
        campaign.figure(f"{name}_p99_ms", 1e3 * percentile(times, 99), "ms")
        campaign.figure(f"{name}_max_ms", 1e3 * max(times), "ms")


def _chosen(campaign: Campaign, number: int, end: str) -> bool:
    """Returns whether a case also goes to the daemon: some do, and all on which a process died."""
    if end.startswith("died") or campaign.only is not None:
        return True
    one_in = _REFUSED if end in _REFUSALS else _TAKEN
    return campaign.random(number, "daemon").random() * one_in < 1


def _codes(base: type[Any]) -> Iterator[str]:
    yield base.code
    for kind in base.__subclasses__():
        yield from _codes(kind)


#: all outcomes that are the fault of the controller or of the module
_ANY = " ".join([*_codes(ControllerError), *_codes(ModuleError), GOES_ON, STOPS])
