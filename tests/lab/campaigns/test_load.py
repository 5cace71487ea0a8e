"""The load detects answers, rows, splices, forks and logs of another sequence."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.campaigns import load as load_module
from lab.campaigns.ledger import Ledger, make_vocabulary
from lab.campaigns.load import Load
from lab.campaigns.processes import build_ledger
from pyaici.client.runtime import Runtime
from tests.thorough import cases

OURS = make_vocabulary(300, 0)


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_ledger(tmp_path_factory.mktemp("ledger"))


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=2, num_dense=64) as runtime:
        runtime.register(OURS)
        yield runtime


@pytest.fixture
def load(runtime: Runtime, wasm: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    monkeypatch.setattr(load_module, "_FORWARD_SECONDS", (0.0, 0.001))
    churn = {"clone": 0.3, "prepare": 0.1, "upload": 0.1}
    load = Load(runtime, runtime.upload(wasm).id, OURS, 16, random.Random(11), churn, wasm.read_bytes())
    yield load
    load.finish()


def test_correct_answers_are_accepted(load: Load) -> None:
    while load.done["answers"] < cases(600, 1500):
        load.step()
        assert not load.wrong and not load.losses
    done = load.done
    assert min(done[what] for what in ("requests", "forks", "clones", "prepares", "uploads")) > 0


def test_mixed_up_answers_are_detected(load: Load) -> None:
    """Swaps the expectations of two sequences."""
    while load.live < 16 or any(it.late for it in load._live.values()):
        load.step()
    load.churn.clear()  # a clone of one of the two would be wrong, too
    (one, first), (other, second) = list(load._live.items())[:2]
    assert first.ledger.argument != second.ledger.argument
    load._live[one], load._live[other] = second, first
    second.report = second.report._replace(seq=one)
    first.report = first.report._replace(seq=other)
    assert not load.wrong
    while one in load._live or other in load._live:  # each is dropped with its answer, which may be late
        load.step()
    assert len(load.wrong) == 2


def test_answers_for_another_vocabulary_are_detected(load: Load) -> None:
    load.vocabulary = make_vocabulary(300, 7)
    load.churn.clear()
    load.step()
    assert load.wrong and len(load.wrong) + load.done["late"] == 16
    assert not load.done["answers"]


def test_expected_answers_depend_on_prompt_argument_and_tokens() -> None:
    def answer(key: int, prompt: list[int], tokens: list[int]) -> object:
        ledger = Ledger(key, 0, prompt, OURS)
        ledger.begin_step([], 0)
        ledger.begin_step(tokens, 0)
        return ledger._hash

    answers = [answer(1, [5, 6], [7]), answer(2, [5, 6], [7]), answer(1, [6, 5], [7]), answer(1, [5, 6], [8])]
    assert len(set(answers)) == 4
