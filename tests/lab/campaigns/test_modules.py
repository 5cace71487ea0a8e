"""The campaign `modules` in a short form, and its detection of failures."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aicirt.wasm.module.check import check
from lab.campaigns import crowd, modules
from lab.campaigns.campaign import Campaign
from lab.campaigns.mutation import _KINDS, mutate
from lab.campaigns.sacrifice import COMPILING, RUNNING, STAGE
from lab.campaigns.sections import entries_of, join, of_entries, split
from lab.campaigns.seeds import seed_modules
from lab.report import Report
from tests.thorough import cases


@pytest.fixture(scope="module")
def seeds() -> list[bytes]:
    return seed_modules()


@pytest.mark.thorough  # tests/lab/fuzz/test_fuzz.py reads changed modules
def test_short_run_has_no_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "_REFUSED", 20)
    monkeypatch.setattr(modules, "_TAKEN", 7)
    report = Report("modules")
    campaign = Campaign(report, 3, 100, None, tmp_path)
    modules.run(campaign)
    assert not campaign.failures, [file.read_text() for file in tmp_path.glob("*.failure")]
    found = {figure.name: figure.value for figure in report.figures}
    assert found["modules.modules"] == 100 == found["modules.refused"] + found["modules.taken"]
    assert found["modules.refused"] > 30 and found["modules.taken"] > 10
    assert found["modules.through_daemon.refused"] > 0 and found["modules.through_daemon.taken"] > 0


def test_cases_are_reproducible(seeds: list[bytes]) -> None:
    first, again = (mutate(random.Random("a seed"), seeds) for _ in range(2))
    assert first == again != mutate(random.Random("another"), seeds)


def test_every_change_occurs_and_many_modules_stay_valid(seeds: list[bytes]) -> None:
    made, taken, count = set(), 0, cases(600, 1500)
    for number in range(count):
        wasm, done = mutate(random.Random(number), seeds)
        made.update(done)
        taken += check(wasm).accepted
    assert made == {f"{kind}.{c.__name__.strip('_')}" for kind, changes in _KINDS.items() for c in changes}
    assert 0.13 < taken / count < 0.67


def test_split_and_join_of_sections_and_entries_are_inverse(seeds: list[bytes]) -> None:
    kinds = set()
    for wasm in set(seeds):
        sections = split(wasm)
        assert join(sections) == wasm and check(wasm).accepted
        for section in sections:
            entries = entries_of(section)
            if entries is not None:
                kinds.add(section.id)
                assert len(entries) > 0
                assert join([of_entries(section.id, entries)]) == join([section])
    assert kinds >= {1, 2, 3, 4, 5, 6, 7, 10, 11, 13}


@pytest.mark.parametrize("stage", [COMPILING, RUNNING])
def test_death_of_a_process_is_a_failure_unless_it_compiles(
    stage: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may die while it compiles, as the runtime's own child may. Other cases continue."""

    class Mortal(crowd.Child):
        def ask(self, first: int, last: int) -> Iterator[dict[str, Any]]:
            for result in super().ask(first, last):
                if result["case"] == 3:
                    os.kill(self._process.pid, signal.SIGKILL)
                    self._process.wait()
                    self.stage.write_bytes(STAGE.pack(3, stage))
                    return
                yield result

    monkeypatch.setattr(crowd, "Child", Mortal)
    campaign = Campaign(Report("modules"), 3, 8, None, tmp_path)
    processes = crowd.Crowd(campaign)
    processes.width = 1
    processes.work()
    results = dict(processes.results())
    assert sorted(results) == list(range(8))
    assert results[3]["end"] == "died SIGKILL"
    assert ("flaw" in results[3]) == (stage == RUNNING)
    assert modules._chosen(campaign, 3, "died SIGKILL"), "the case also goes to the daemon"
