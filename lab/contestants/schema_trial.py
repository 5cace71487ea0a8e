"""Tries a schema with several engines in turn: compilation, ten requests, and texts to refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from lab.inputs.maskbench import Case, more_texts
from lab.measurement.child import Child, ChildError

REQUESTS = 10
#: requests whose masks are figures
PHASES = {"cold": 0, "second": 1, "tenth": REQUESTS - 1}
#: limits of a call, s: compiling, a text, the work between two requests, finding more texts
COMPILE_SECONDS = 3.0
_WALK_SECONDS, _IDLE_SECONDS, _TEXTS_SECONDS = 60.0, 60.0, 20.0
#: characters of a text in a result
_MAX_TEXT = 1000


@contextmanager
def text_maker() -> Iterator[Any]:
    """For a child process: finding texts for a schema may take forever."""
    yield SimpleNamespace(more_texts=more_texts)


class Trial:
    """Runs cases. Its children must be closed by the caller."""

    def __init__(self, engines: Mapping[str, Child], texts: Child) -> None:
        self._engines, self._texts = engines, texts

    def run(self, case: Case, number: int) -> dict[str, Any]:
        """Returns what was measured, for JSON. `number`: of the case, decides which engine begins.

        "phases" are those whose text is new to the schema. For each engine: "refused" (the reason), or
        "compile", "idle_ms" and the walks of each phase; and "outcome", with the "wrong" text.
        """
        texts = self._find_texts(case)
        order = requests(texts)
        phases = [phase for phase, place in PHASES.items() if order and order[place] not in order[:place]]
        found: dict[str, dict[str, Any]] = {name: {} for name in self._engines}
        walks: dict[str, list[dict[str, Any]]] = {name: [] for name in self._engines}
        for name in self._turn(number):
            found[name] |= self._ask(name, "compile", case.schema, seconds=COMPILE_SECONDS)
        for place, which in enumerate(order):
            for name in self._turn(number + place):
                if "refused" not in found[name]:
                    walks[name].append(self._request(name, texts[which], found[name]))
        for name, result in found.items():
            if "refused" not in result:
                result["phases"] = {phase: walks[name][PHASES[phase]] for phase in phases}
            taken = {texts[which]: walk for which, walk in zip(order, walks[name], strict=False)}
            result["outcome"] = self._outcome(name, result, case, taken)
        return {"name": case.name, "phases": phases, "engines": found}

    def _request(self, name: str, text: str, result: dict[str, Any]) -> dict[str, Any]:
        """Walks through a text, and does the work before the next request."""
        walk = self._ask(name, "walk", text, seconds=_WALK_SECONDS)
        if "refused" not in walk:
            idle = self._ask(name, "idle", seconds=_IDLE_SECONDS)
            result["idle_ms"] = result.get("idle_ms", 0.0) + idle.pop("idle_ms", 0.0)
            result |= idle
        else:
            result["refused"] = walk["refused"]
        return walk

    def _find_texts(self, case: Case) -> list[str]:
        try:
            found: list[str] = self._texts.call(
                "more_texts", case.schema, case.valid, REQUESTS, seconds=_TEXTS_SECONDS
            )
            return found
        except ChildError:
            return list(dict.fromkeys(case.valid))[:REQUESTS]

    def _turn(self, number: int) -> list[str]:
        names = list(self._engines)
        shift = number % len(names)
        return names[shift:] + names[:shift]

    def _ask(self, name: str, method: str, *arguments: Any, seconds: float) -> dict[str, Any]:
        """A child that dies or does not answer refuses the schema."""
        try:
            answer: dict[str, Any] = self._engines[name].call(method, *arguments, seconds=seconds)
            return answer
        except ChildError as error:
            return {"refused": str(error)}

    def _outcome(
        self, name: str, result: dict[str, Any], case: Case, taken: Mapping[str, dict[str, Any]]
    ) -> str:
        """Returns "pass" if all valid texts are taken and all invalid ones refused, as MaskBench counts."""
        if "refused" in result:
            return "refused" if "compile" not in result else "failed"
        for text in (*case.valid, *case.invalid):
            walk = taken.get(text) or self._ask(name, "walk", text, seconds=_WALK_SECONDS)
            if problem := walk.get("refused") or walk.get("error"):
                result["refused"] = problem
                return "failed"
            if walk["taken"] != (text in case.valid):
                result["wrong"] = text[:_MAX_TEXT]
                return "valid text refused" if text in case.valid else "invalid text accepted"
        result["kib"] = self._engines[name].grown_kib
        return "pass"


def requests(texts: Sequence[str]) -> list[int]:
    """Returns the number of the text of each request: the last text is kept for the last request."""
    if not texts:
        return []
    others = max(len(texts) - 1, 1)
    return [place % others for place in range(REQUESTS - 1)] + [len(texts) - 1]
