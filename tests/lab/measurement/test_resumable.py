"""Results on disk survive an interruption, and belong to one kind of run."""

from __future__ import annotations

from pathlib import Path

from lab.measurement.resumable import ResumableResults

ABOUT = {"data": "here", "seed": 1}


def test_results_are_found_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "results.jsonl"
    results = ResumableResults(path, ABOUT)
    assert (list(results), results.names) == ([], set())
    results.add({"name": "a", "value": 1})
    results.add({"name": "b", "value": 2})
    again = ResumableResults(path, ABOUT)
    assert again.names == {"a", "b"}
    assert [result["value"] for result in again] == [1, 2]


def test_incomplete_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResumableResults(path, ABOUT).add({"name": "a"})
    for rest in ('{"name": "b", "va', '{"name": "b"}'):
        with path.open("a") as file:
            file.write(rest)
        results = ResumableResults(path, ABOUT)
        assert results.names == {"a"}
        results.add({"name": "c"})
        assert [result["name"] for result in ResumableResults(path, ABOUT)] == ["a", "c"]
        path.write_text("")
        ResumableResults(path, ABOUT).add({"name": "a"})


def test_results_of_another_kind_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    ResumableResults(path, ABOUT).add({"name": "a"})
    assert ResumableResults(path, {**ABOUT, "seed": 2}).names == set()
    assert ResumableResults(path, ABOUT).names == set()
