"""The comparison of engines for JSON schemas: engines that are wrong on purpose are found out."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from lab.contestants import Contestant
from lab.contestants.grammar_cases import Arena, Controllers
from lab.exactness.followers import MAKERS, Follower, maker, words
from lab.exactness.kit import NARROW, ORDER, SPELLING, WIDE, Comparison, Score
from lab.measurement.local_worker import LocalWorker, load_for_guests
from lab.system.waiting import PATIENCE
from pyaici.bundled import find_controller

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 3}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
TEXT = '{"a": 12, "b": "xy"}'


def with_schema(change: Callable[[Any], None]) -> Callable[[Arena, Any], Contestant]:
    """Returns the maker of our engine, which gets another schema than it is asked for."""

    def make(arena: Arena, schema: Any) -> Contestant:
        schema = copy.deepcopy(schema)
        change(schema)
        return MAKERS["aici"](arena, schema)

    return make


def forget_length(schema: Any) -> None:
    del schema["properties"]["b"]["maxLength"]


def shorten(schema: Any) -> None:
    schema["properties"]["b"]["maxLength"] = 2


def reverse(schema: Any) -> None:
    schema["properties"] = dict(reversed(schema["properties"].items()))


def any_blanks(arena: Arena, schema: Any) -> Contestant:
    return arena.aici("json_schema", json.dumps({"schema": schema, "whitespace": "flexible"}))


class Here:
    """Stands in for the child process of an engine."""

    def __init__(self, target: Follower) -> None:
        self._target = target

    def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        assert seconds > 0
        return getattr(self._target, method)(*arguments)


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    loaded = load_for_guests(words(), masks_only=True)
    with LocalWorker(loaded) as worker:
        yield Arena(words(), loaded, worker, Controllers(find_controller("json_schema").parent))


def compare(arena: Arena, **makers: Callable[[Arena, Any], Contestant]) -> dict[str, Score]:
    with ExitStack() as stack:
        engines = {
            name: Here(stack.enter_context(closing(Follower(functools.partial(make, arena)))))
            for name, make in makers.items()
        }
        comparison = Comparison(engines)
        comparison.schema("s", SCHEMA, [TEXT])
    return comparison.scores


def test_equal_engines_have_no_flaws(arena: Arena) -> None:
    scores = compare(arena, one=MAKERS["aici"], other=MAKERS["aici"])
    assert all(score.masks > 5 and not score.different and not score.flaws for score in scores.values())


@pytest.mark.parametrize(
    ("change", "wrong", "kind"),
    [(forget_length, "other", WIDE), (shorten, "other", NARROW), (reverse, "other", ORDER)],
)
def test_wrong_engine_is_found_out(arena: Arena, change: Any, wrong: str, kind: str) -> None:
    scores = compare(arena, right=MAKERS["aici"], other=with_schema(change))
    (flaw,) = [flaw for flaw in scores[wrong].flaws.values() if flaw.kind == kind]
    assert flaw.schema == "s" and json.loads(flaw.text)["a"] is not None
    assert kind == ORDER or not scores["right"].flaws
    assert set(scores[wrong].tokens) <= {kind, ORDER}


def test_other_blanks_are_a_matter_of_style(arena: Arena) -> None:
    scores = compare(arena, spaced=MAKERS["aici"], flexible=any_blanks)
    assert set(scores["spaced"].tokens) == {SPELLING} and not scores["flexible"].flaws


def test_refusals_are_counted(arena: Arena) -> None:
    def broken(schema: Any) -> None:
        schema["type"] = "nothing"

    scores = compare(arena, one=MAKERS["aici"], other=with_schema(broken))
    assert "one of null, boolean" in scores["other"].refused["s"] and not scores["one"].refused
    assert not scores["one"].judged, "there is nobody to compare with"


def test_engines_of_others_are_named_by_their_function() -> None:
    assert maker(f"{__name__}:any_blanks") is any_blanks
    with pytest.raises(ValueError, match="neither one of aici, llguidance"):
        maker("nobody")


@pytest.mark.thorough  # the tests above call what the command calls
def test_command_writes_figures_and_witnesses(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    case = {"schema": SCHEMA, "tests": [{"data": json.loads(TEXT), "valid": True}]}
    (data / "s.json").write_text(json.dumps(case))
    command = [sys.executable, "-m", "lab.exactness", "--data", data, "--json", tmp_path / "out.json"]
    command += ["--engine", "aici", "--engine", "tests.lab.exactness.test_kit:any_blanks"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert "forbids_valid" in done.stdout
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["engines"]["aici"]["schemas"] == 1 and found["engines"]["aici"]["masks"] > 5
    assert found["details"]["aici"]["flaws"][0]["kind"] == SPELLING
