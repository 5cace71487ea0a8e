"""Evaluations with a tiny model: metrics, intervals, counts, and the same outcomes in every run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyaici.client.runtime import Runtime
from pyaici.engines.batching.engine import BatchingEngine
from pyaici.engines.engine import Origin, Request, Sampling, TokensAppended
from pyaici.evaluation import (
    Example,
    Outcome,
    Variant,
    difference,
    evaluate,
    find_metric,
    mean,
    read_examples,
)
from pyaici.evaluation.metrics import by_row
from pyaici.evaluation.report import BASELINE, CONTROLLER, Report, read_results
from pyaici.testing.playground import PATIENT
from tests.pyaici.engines.batching.support import byte_vocabulary, make_engine, make_model, script

#: a fork waits for another one, which goes on beside it
RELAY = """
mine = await fork(3)
if mine == 1:
    await gen(max_tokens=5)
    set_var("here", "yes")
if mine == 2:
    await wait("here")
await gen(max_tokens=9)
"""


@pytest.fixture(scope="module")
def runtime() -> Iterator[Runtime]:
    with Runtime(workers=1, limits=PATIENT) as runtime:
        yield runtime


@pytest.fixture
def engine(runtime: Runtime) -> Iterator[BatchingEngine]:
    with make_engine(make_model(), runtime=runtime, vocabulary=byte_vocabulary()) as engine:
        yield engine


def examples(count: int) -> list[Example]:
    return [Example(str(number), [65 + number], {"expected": "x"}) for number in range(count)]


def controller(body: str) -> Variant:
    made = script(body)
    return Variant(CONTROLLER, made["controller"], lambda data: made["arg"])


# -- metrics -----------------------------------------------------------------------------------------------


def judged(metric: str, text: str, expected: Any, error: str | None = None) -> float:
    return find_metric(metric)({"expected": expected}, {"text": text, "error": error})


@pytest.mark.parametrize(
    ("metric", "text", "expected", "value"),
    [
        ("exact", " 56\n", "56", 1),
        ("exact", "56.", "56", 0),
        ("exact", "56", 56, 1),
        ("exact", "Rome", ["Paris", "Rome"], 1),
        ("contains", "It is 56.", "56", 1),
        ("contains", "It is 57.", ["56", "58"], 0),
        ("regex", "It is 56.", r"\b5\d\b", 1),
        ("json", '{"b": [1.0], "a": 2}', {"a": 2, "b": [1]}, 1),
        ("json", '{"a": true}', {"a": 1}, 0),
        ("json", '{"a": 1, "b": 2}', {"a": 1}, 0),
        ("json", "{", {}, 0),
        ("json", "[" * 100_000, {}, 0),
        ("length", "four", None, 4),
    ],
)
def test_metrics(metric: str, text: str, expected: Any, value: float) -> None:
    assert judged(metric, text, expected) == value


def test_a_sequence_with_an_error_has_no_score_but_a_length() -> None:
    assert judged("exact", "56", "56", error="it failed") == 0
    assert judged("length", "56", "56", error="it failed") == 2


def test_metrics_in_files_of_python(tmp_path: Path) -> None:
    file = tmp_path / "judge.py"
    file.write_text("def half(row, result):\n    return len(result['text']) / row['of']\nother = 1\n")
    half = find_metric(f"{file}:half")
    assert half.name == "half" and half({"of": 8}, {"text": "four", "error": None}) == 0.5
    with pytest.raises(ValueError, match=r"half failed for the row .*ZeroDivisionError"):
        half({"of": 0}, {"text": "four", "error": None})
    for name, words in (
        ("exakt", "no metric 'exakt': the metrics are exact, contains"),
        (f"{file}:other", "has no function other"),
        (f"{tmp_path}/none.py:half", "cannot read .*none.py: No such file"),
    ):
        with pytest.raises(ValueError, match=words):
            find_metric(name)


# -- rows and intervals ------------------------------------------------------------------------------------


def test_rows_are_read_with_their_ids(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    message = {"role": "user", "content": "Hello"}
    file.write_text(f'{{"prompt": "A", "id": "first"}}\n\n{{"messages": [{json.dumps(message)}]}}\n')
    first, second = read_examples(file)
    assert (first.id, first.prompt, second.id, second.prompt) == ("first", "A", "3", [message])
    assert read_examples(file, 1) == [first]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no rows"),
        ("{", "line 1: this is not JSON"),
        ("[" * 100_000, "line 1: this is not JSON"),
        ('{"prompt": "A"}\n{"expected": 1}', "line 2: a row is an object with either a prompt or messages"),
        ('{"prompt": 1}', "prompt must be a text"),
        ('{"messages": ["A"]}', "messages a list of objects"),
        ('{"prompt": "A", "id": 2}\n{"prompt": "B"}', "several rows have the same id"),
    ],
)
def test_wrong_rows_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(ValueError, match=words):
        read_examples(tmp_path / "rows.jsonl")


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    """With 40 rows, 95 % intervals of the bootstrap cover a little less: 93 % of 300 is 279."""
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(300):
        found = mean(list(generator.normal(5, 2, size=40)))
        covered += found.low <= 5 <= found.high
    assert 267 <= covered <= 297


def test_rows_are_the_sample_not_seeds() -> None:
    """Ten equal seeds tell no more than one."""
    results = [
        {"variant": CONTROLLER, "id": str(row), "metrics": {"exact": float(row % 2)}}
        for row in range(20)
        for _ in range(10)
    ]
    values = list(by_row(results, CONTROLLER, "exact").values())
    assert len(values) == 20 and mean(values) == mean([float(row % 2) for row in range(20)])


def test_differences_are_paired() -> None:
    old = {str(row): row * 10.0 for row in range(30)}
    worse = difference({row: value - 1 for row, value in old.items()}, old)
    assert worse.worse and (worse.low, worse.value, worse.high) == (-1, -1, -1)
    same = difference(old, {**old, "more": 5.0})
    assert not same.worse and same.value == 0
    with pytest.raises(ValueError, match="no row in common"):
        difference({"a": 1.0}, {"b": 1.0})


# -- outcomes ------------------------------------------------------------------------------------------------


def test_counts_are_those_of_the_events(engine: BatchingEngine) -> None:
    body = """
await force("ab")
here = label()
await gen(max_tokens=3)
await backtrack(here)
await fork(2)
set_var("name", "value")
await gen(max_tokens=4)
"""
    (outcome,) = evaluate(engine, examples(1), controller(body), [find_metric("length")])
    assert (outcome.sampled, outcome.forced, outcome.backtracked, outcome.sequences) == (3 + 2 * 4, 2, 3, 2)
    assert (
        outcome.variables == {"name": "value"} and outcome.finish_reason == "stop" and outcome.error is None
    )
    assert outcome.metrics == {"length": len(outcome.text)} and outcome.seconds > outcome.control_seconds > 0
    assert outcome.passes == engine.stats.steps - 1, "the last step ends the forks"


def test_errors_of_scripts_are_outcomes(engine: BatchingEngine) -> None:
    (outcome,) = evaluate(engine, examples(1), controller("await gen(max_tokens=2)\nfail('no more')"), [])
    assert outcome.finish_reason == "error" and "no more" in str(outcome.error)


def lines(outcomes: list[Outcome]) -> dict[tuple[str, int], Mapping[str, Any]]:
    return {(outcome.id, outcome.seed): outcome.result() for outcome in outcomes}


def test_an_outcome_depends_on_its_row_and_seed_alone(runtime: Runtime) -> None:
    request = Request("", sampling=Sampling(1.0), max_tokens=12)
    variant, found = controller(RELAY), []
    for rows in (examples(3), examples(3)[::-1], examples(1)):
        with make_engine(make_model(), runtime=runtime, vocabulary=byte_vocabulary()) as engine:
            found.append(lines(list(evaluate(engine, rows, variant, [], seeds=(1, 2), request=request))))
    assert found[0] == found[1] and len(found[0]) == 6
    assert found[2] == {key: found[0][key] for key in (("0", 1), ("0", 2))}
    assert len({outcome["text"] for outcome in found[0].values()}) > 3
    assert len({outcome["request_seed"] for outcome in found[0].values()}) == 6


def passes(
    engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch, delay: int
) -> list[list[tuple[int, int]]]:
    """Returns which sequences sampled how many tokens in each step, where news of ended waits come later."""
    assert engine.runtime is not None
    real, held = engine.runtime.woken, list[list[int]]()

    def woken() -> list[int]:
        held.append(real())
        return held[-1 - delay] if len(held) > delay else []

    with monkeypatch.context() as patch:
        patch.setattr(engine.runtime, "woken", woken)
        number = engine.add(Request([65], max_tokens=30, **script(RELAY)))
        steps = []
        while engine.busy:
            events = engine.step()
            steps.append(
                [
                    (event.seq, len(event.tokens))
                    for event in events
                    if isinstance(event, TokensAppended) and event.origin is Origin.SAMPLED
                ]
            )
        first = min(result.seq for result in engine.results(number))
    return [[(seq - first, count) for seq, count in step] for step in steps]


def test_a_steady_engine_computes_the_same_passes_however_late_a_wait_is_known_to_end(
    engine: BatchingEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert passes(engine, monkeypatch, 0) != passes(engine, monkeypatch, 2), "the delay changes nothing"
    engine.steady = True
    assert passes(engine, monkeypatch, 0) == passes(engine, monkeypatch, 2)


# -- reports --------------------------------------------------------------------------------------------


def outcome(variant: str, row: int, exact: float, seed: int = 1) -> Outcome:
    return Outcome(variant, str(row), seed, 0, text="é", metrics={"exact": exact}, passes=4, seconds=row / 7)


def report(right: int, of: int = 20) -> Report:
    made = [outcome(CONTROLLER, row, float(row < right), seed) for seed in (1, 2) for row in range(of)]
    return Report([*made, *(outcome(BASELINE, row, 0.0) for row in range(of))])


def test_a_report_is_written_and_read_again(tmp_path: Path) -> None:
    report(15).write(tmp_path)
    results = read_results(tmp_path / "results.jsonl")
    assert len(results) == 60 and results[0]["text"] == "é" and "seconds" not in results[0]
    times = [json.loads(line) for line in (tmp_path / "times.jsonl").read_text().splitlines()]
    assert {"variant", "id", "seed", "seconds", "control_seconds"} == times[0].keys() and len(times) == 60
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (
        summary["rows"] == 20
        and summary["seeds"] == 2
        and summary["errors"] == {"controller": 0, "baseline": 0}
    )
    assert summary["controller"]["exact"]["mean"] == summary["gain"]["exact"]["mean"] == 0.75
    assert 0.5 < summary["controller"]["exact"]["low"] < 0.75 < summary["controller"]["exact"]["high"] < 0.95
    plot = (tmp_path / "plot.svg").read_text()
    assert plot.startswith("<svg") and plot.count("<circle") == 2 * 3
    with pytest.raises(ValueError, match=r"not a results\.jsonl"):
        read_results(tmp_path / "times.jsonl")


@pytest.mark.parametrize(("earlier", "now", "worse"), [(18, 9, True), (15, 15, False), (9, 18, False)])
def test_regressions_are_those_beyond_chance(tmp_path: Path, earlier: int, now: int, worse: bool) -> None:
    report(earlier).write(tmp_path)
    ((name, change),) = report(now).regressions(read_results(tmp_path / "results.jsonl"))
    assert name == "exact" and change.worse == worse and change.value == pytest.approx((now - earlier) / 20)
