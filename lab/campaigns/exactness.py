"""Random grammars, schemas, patterns and texts: compares each mask along random walks with oracles.

A case is a random source and a random text. An oracle in Python tries every token of a small vocabulary, and
masks of another engine that reads the same source are compared, too (lab/exactness/). A mask
that differs from the oracle is a failure, and so is an empty one where the text is not complete. Known
defects of other engines are in a table (lab/exactness/defects.py) and counted.
"""

from __future__ import annotations

import itertools
import multiprocessing
import queue
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aicirt.sandbox import die_with
from lab.campaigns.campaign import Campaign
from lab.exactness.checker import KINDS, checker
from lab.runners.host import Host
from pyaici.bundled import FOLDER

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

#: engines that can be selected
ENGINES = KINDS
#: cases of each engine in a run without limits
_USUAL = 100
_MAX_WAITING = 64


@dataclass(frozen=True)
class _Found:
    """The result of a case; without a number, a process has done its cases."""

    job: int
    number: int | None
    source: str = ""
    masks: int = 0
    refused: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    flaws: list[str] = field(default_factory=list)


def run(campaign: Campaign) -> None:
    """Runs the campaign, one engine after the other. `count` and `seconds` apply to each."""
    for kind in campaign.engines or ENGINES:
        part = campaign.part_for(kind)
        _run_engine(part, kind)
        campaign.failures += part.failures


def _run_engine(campaign: Campaign, kind: str) -> None:
    masks, counts = 0, Counter[str]()
    for found in _results(campaign, kind):
        assert found.number is not None
        masks, counts = masks + found.masks, counts + found.counts
        campaign.ended("refused" if found.refused else "walked")
        if found.flaws:
            campaign.failed(found.number, "\n\n".join(found.flaws), found.source.encode(), ".source")
    campaign.figure("cases", campaign.done, "cases")
    campaign.figure("masks", masks, "masks")
    campaign.figure("refused", campaign.outcomes["refused"], "cases")
    for name, count in sorted(counts.items()):
        campaign.figure(name.replace(": ", ".").replace(" ", "_"), count, "times")
    campaign.figure("failures", campaign.failures, "cases", target=0)


def _results(campaign: Campaign, kind: str) -> Iterator[_Found]:
    """Yields the results of all processes as they arrive."""
    context = multiprocessing.get_context("spawn")
    results: Queue[_Found] = context.Queue(_MAX_WAITING)
    processes = [
        context.Process(target=_work, args=(results, campaign, kind, job), daemon=True)
        for job in range(campaign.jobs)
    ]
    for process in processes:
        process.start()
    live = set(range(campaign.jobs))
    while live:
        dead = {job for job in live if not processes[job].is_alive()}
        try:
            found = results.get(timeout=1)
        except queue.Empty:
            for job in dead:
                yield _Found(job, -1, flaws=[f"process {job} died with status {processes[job].exitcode}"])
            live -= dead
            continue
        if found.number is None:
            live.discard(found.job)
        else:
            yield found
    for process in processes:
        process.join()


def _work(results: Queue[_Found], campaign: Campaign, kind: str, job: int) -> None:
    """Checks every n-th case, n being the number of processes."""
    parent = multiprocessing.parent_process()
    assert parent is not None and parent.pid is not None
    die_with(parent.pid)  # an oracle may take long
    with Host() as host, checker(kind, host.compile((FOLDER / f"{kind}.wasm").read_bytes())) as check:
        for number in itertools.islice(campaign.cases(_USUAL), job, None, campaign.jobs):
            try:
                case, result = check(campaign.random(number, kind))
            except Exception:  # a failure of an oracle
                results.put(_Found(job, number, flaws=[traceback.format_exc()]))
                continue
            results.put(
                _Found(job, number, case.source, result.masks, result.refused, result.counts, result.flaws)
            )
    results.put(_Found(job, None))
