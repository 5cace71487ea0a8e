"""A trial of a schema: its requests, and whether an engine passes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lab.contestants.schema_trial import REQUESTS, Trial, requests
from lab.inputs.maskbench import Case
from lab.measurement.child import CallTimeout, Child

VALID, INVALID = ["1", "2"], ["x"]


class FakeEngine:
    """Takes the texts in `takes`. `fails`: the call that takes too long."""

    grown_kib = 7

    def __init__(self, log: list[str], name: str, takes: list[str], fails: str = "") -> None:
        self.log, self.name, self.takes, self.fails = log, name, takes, fails

    def call(self, method: str, *arguments: Any, seconds: float) -> dict[str, Any]:
        if self.fails in (method, *arguments):
            raise CallTimeout(f"{method} took more than {seconds:g} s")
        self.log.append(f"{self.name} {method}")
        if method == "compile":
            return {"compile": [2, 1]}
        if method == "idle":
            return {"idle_ms": 0.5}
        return {"start": [2, 1], "wall": [1], "cpu": [1], "taken": arguments[0] in self.takes}


class FakeTexts:
    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def call(self, *_: Any, seconds: float) -> list[str]:
        return self.texts


def result(engine: FakeEngine, texts: list[str] | None = None) -> dict[str, Any]:
    trial = Trial(
        {"one": cast(Child, engine)}, cast(Child, FakeTexts(["1", "2", "3"] if texts is None else texts))
    )
    return trial.run(Case("a", {}, VALID, INVALID), 0)


@pytest.mark.parametrize(
    ("takes", "fails", "outcome"),
    [
        (["1", "2", "3"], "", "pass"),
        (["1", "2"], "", "pass"),  # the third text is no test of the file
        (["1"], "", "valid text refused"),
        (["1", "2", "x"], "", "invalid text accepted"),
        (["1", "2"], "compile", "refused"),
        (["1", "2"], "x", "failed"),
        (["1", "2"], "2", "failed"),
    ],
)
def test_outcome(takes: list[str], fails: str, outcome: str) -> None:
    found = result(FakeEngine([], "one", takes, fails))["engines"]["one"]
    assert found["outcome"] == outcome
    assert ("refused" in found) == bool(fails)
    assert found.get("wrong") == {"valid text refused": "2", "invalid text accepted": "x"}.get(outcome)
    if outcome == "pass":
        assert (found["idle_ms"], found["kib"]) == (0.5 * REQUESTS, 7)


def test_phases_have_a_text_that_is_new() -> None:
    engine = FakeEngine([], "one", VALID)
    assert result(engine)["phases"] == ["cold", "second", "tenth"]
    assert result(engine, ["1", "2"])["phases"] == ["cold", "tenth"]
    assert result(engine, ["1"])["phases"] == ["cold"]
    nothing = result(engine, [])
    assert (nothing["phases"], nothing["engines"]["one"]["outcome"]) == ([], "pass")


def test_requests_use_all_texts_and_keep_one_for_the_last() -> None:
    assert requests(list("abcdefghij")) == list(range(10))
    assert requests(list("abc")) == [0, 1, 0, 1, 0, 1, 0, 1, 0, 2]
    assert requests(["a"]) == [0] * 10
    assert requests([]) == []


def test_engines_take_turns() -> None:
    log: list[str] = []
    engines = {name: cast(Child, FakeEngine(log, name, VALID)) for name in "ab"}
    Trial(engines, cast(Child, FakeTexts(VALID))).run(Case("a", {}, VALID, []), 0)
    assert log[:6] == ["a compile", "b compile", "a walk", "a idle", "b walk", "b idle"]
    assert log[6:10] == ["b walk", "b idle", "a walk", "a idle"]
