"""Figures of MaskBench: masks, compilation, starts, memory and coverage of each engine."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator
from numpy.typing import NDArray

from lab.contestants.schema_trial import PHASES
from lab.report import Report

OURS, PEER, SLOW_PEER = "aici", "llguidance", "xgrammar"
#: our engine, with its work counted instead of timed
FUEL = "fuel"
_PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9}
#: positions of tokens in a text, from 1: the name of a range, and its end
_POSITIONS = {"1": 1, "2": 2, "3-7": 7, "8-15": 15, "16-63": 63, "64-": 1 << 40}
_MAX_REASONS, _MAX_NAMES = 20, 100
#: for ratios, the clock of the thread: other load on the machine does not change it
_CLOCK = "cpu"

Times = NDArray[np.int64]


class MaskFigures:
    """Reads results and reports. Times of masks are in us, others in ms."""

    def __init__(self, engines: Sequence[str], results: Iterable[Mapping[str, Any]]) -> None:
        self.engines = engines
        self.schemas = 0
        self.outcomes: dict[str, Counter[str]] = {name: Counter() for name in engines}
        #: engine -> outcome -> names of schemas, and the text or reason; not of those that pass
        self.failures: dict[str, dict[str, dict[str, str]]] = {name: defaultdict(dict) for name in engines}
        self.reasons: dict[str, Counter[str]] = {name: Counter() for name in engines}
        self._compile: dict[str, list[tuple[int, int] | None]] = {name: [] for name in engines}
        self._starts: dict[str, list[tuple[int, int]]] = {name: [] for name in engines}
        self._kib: dict[str, list[float]] = {name: [] for name in engines}
        self._idle_ms: list[float] = []
        self._template_kib: list[float] = []
        self._fuel: dict[str, list[int]] = defaultdict(list)
        self._compile_fuel: list[int] = []
        #: (engine, phase, clock) -> the masks of each text
        self._masks: dict[tuple[str, str, str], list[Times]] = defaultdict(list)
        #: (peer, phase, clock) -> ours and theirs, where both computed the mask of the same token
        self._pairs: dict[tuple[str, str, str], list[tuple[Times, Times]]] = defaultdict(list)
        for result in results:
            self._add(result)

    def _add(self, result: Mapping[str, Any]) -> None:
        self.schemas += 1
        for name in self.engines:
            found = result["engines"][name]
            self.outcomes[name][found["outcome"]] += 1
            if len(known := self.failures[name][found["outcome"]]) < _MAX_NAMES:
                known[result["name"]] = found.get("wrong") or found.get("refused", "")
            if "refused" in found:
                self.reasons[name][reason_group(found["refused"])] += 1
            self._compile[name].append(tuple(found["compile"]) if "compile" in found else None)
            if "kib" in found:
                self._kib[name].append(found["kib"])
        fuel = result["engines"].get(FUEL, {})
        self._compile_fuel += [fuel["fuel"]] if "fuel" in fuel else []
        for phase, walk in fuel.get("phases", {}).items():
            self._fuel[phase] += walk.get("fuel", [])
        ours = result["engines"][OURS]
        if "idle_ms" in ours:
            self._idle_ms.append(ours["idle_ms"])
            self._template_kib.append(ours["template_kib"])
        for phase in result["phases"]:
            walks = {
                name: result["engines"][name]["phases"][phase]
                for name in self.engines
                if phase in result["engines"][name].get("phases", {})
            }
            self._add_walks(phase, walks)

    def _add_walks(self, phase: str, walks: Mapping[str, Any]) -> None:
        for name, walk in walks.items():
            if "start" in walk:  # a start may fail
                self._starts[name].append(tuple(walk["start"]))
        for clock in ("wall", "cpu"):
            times = {name: np.asarray(walk[clock], np.int64) for name, walk in walks.items()}
            for name, its in times.items():
                self._masks[name, phase, clock].append(its)
                if name != OURS and OURS in times:
                    count = min(len(its), len(times[OURS]))
                    self._pairs[name, phase, clock].append((times[OURS][:count], its[:count]))

    # -- the report ----------------------------------------------------------------------------

    def report(self, report: Report) -> None:
        """Adds all figures and details; those relative to other engines come last."""
        report.figure("maskbench.schemas", self.schemas, "schemas")
        for name in self.engines:
            self._report_engine(report, name)
        report.details |= {
            "outcomes": {name: dict(found) for name, found in self.outcomes.items()},
            "failures": {
                name: {outcome: names for outcome, names in its.items() if outcome != "pass"}
                for name, its in self.failures.items()
            },
            "refusals": {name: dict(found.most_common(_MAX_REASONS)) for name, found in self.reasons.items()},
            "masks": {
                phase: {name: self._all_clocks(name, phase) for name in self.engines} for phase in PHASES
            },
            "pairs": {
                phase: {peer: self._pair(peer, phase) for peer in self.engines if peer != OURS}
                for phase in PHASES
            },
        }
        if self._idle_ms:
            report.figure("maskbench.aici.builder_ms", float(np.mean(self._idle_ms)), "ms")
            report.figure("maskbench.aici.template_kib", float(np.median(self._template_kib)), "KiB")
        self._report_fuel(report)
        self._report_ratios(report)

    def _report_engine(self, report: Report, name: str) -> None:
        prefix = f"maskbench.{name}"
        for phase in PHASES:
            if len(times := _joined(self._masks[name, phase, _CLOCK])):
                report.samples(f"maskbench.{phase}.{name}", (times / 1e3).tolist(), "us")
                for what, value in _statistics(times).items():
                    if what != "count":
                        report.figure(f"{prefix}.{phase}.{what}_us", value, "us")
        for what, pairs in (("compile", self._compile[name]), ("start", self._starts[name])):
            if its := [pair[1] for pair in pairs if pair is not None]:
                times = np.asarray(its, np.int64)
                report.samples(f"{prefix}.{what}_ms", (times / 1e6).tolist(), "ms")
                report.figure(f"{prefix}.{what}_p50_ms", float(np.percentile(times, 50)) / 1e6, "ms")
                report.figure(f"{prefix}.{what}_p99_ms", float(np.percentile(times, 99)) / 1e6, "ms")
                report.figure(f"{prefix}.{what}_max_ms", int(times.max()) / 1e6, "ms")
        if self._kib[name]:
            report.figure(f"{prefix}.grown_mb", max(self._kib[name]) / 1024, "MiB")
        report.figure(f"{prefix}.pass_pct", self._share(name, "pass"), "%")
        report.figure(f"{prefix}.compiled_pct", 100 - self._share(name, "refused"), "%")

    def _report_fuel(self, report: Report) -> None:
        """Reports thousands of units of fuel."""
        for what, units in (*self._fuel.items(), ("compile", self._compile_fuel)):
            if units:
                name = f"maskbench.fuel.{what}"
                report.samples(name, [one / 1e3 for one in units], "kfuel")
                report.figure(f"{name}.mean", float(np.mean(units)) / 1e3, "kfuel")
                report.figure(f"{name}.p50", float(np.percentile(units, 50)) / 1e3, "kfuel")
                report.figure(f"{name}.p99", float(np.percentile(units, 99)) / 1e3, "kfuel")

    def _report_ratios(self, report: Report) -> None:
        for phase in PHASES:
            pairs = self._pairs[PEER, phase, _CLOCK]
            ours, theirs = (_statistics(_joined(its)) for its in _sides(pairs))
            if ours and theirs:
                for what in ("mean", "p50", "p99"):
                    report.figure(f"maskbench.{phase}.{what}_ratio", ours[what] / theirs[what], "ratio")
        last = list(PHASES)[-1]
        ours, theirs = (_statistics(_joined(its)) for its in _sides(self._pairs[SLOW_PEER, last, _CLOCK]))
        if ours and theirs:
            name = f"maskbench.{last}.mean_ratio_to_{SLOW_PEER}"
            report.figure(name, ours["mean"] / theirs["mean"], "ratio")
        both = [
            (one[1], other[1])
            for one, other in zip(self._compile[OURS], self._compile[PEER], strict=True)
            if one is not None and other is not None
        ]
        if both:
            ratio = np.median([one for one, _ in both]) / np.median([other for _, other in both])
            report.figure("maskbench.compile_p50_ratio", float(ratio), "ratio")
        report.figure("maskbench.pass_pct", self._share(OURS, "pass"), "%")
        wrong = self.outcomes[OURS]["invalid text accepted"]
        report.figure("maskbench.invalid_accepted", wrong, "schemas", target=0)

    def _share(self, name: str, outcome: str) -> float:
        return 100 * self.outcomes[name][outcome] / max(self.schemas, 1)

    def _all_clocks(self, name: str, phase: str) -> dict[str, Any]:
        return {clock: _by_position(self._masks[name, phase, clock]) for clock in ("cpu", "wall")}

    def _pair(self, peer: str, phase: str) -> dict[str, Any]:
        """Returns statistics of the masks that both engines computed."""
        return {
            clock: {
                name: _by_position(its)
                for name, its in zip((OURS, peer), _sides(self._pairs[peer, phase, clock]), strict=True)
            }
            for clock in ("cpu", "wall")
        }


def reason_group(message: str) -> str:
    """Returns what many messages have in common: without places, names and numbers.

    Only the first of several reasons counts: the first line with a JSON pointer, or else the first line.
    """
    lines = message.strip().splitlines() or [""]
    line = next((line for line in lines if line.startswith("#")), lines[0])
    line = re.sub(r"(#|\B)(/[^\s:;,]+)+", _keyword, line)
    line = re.sub(r"\"[^\"]*\"|'[^']*'|`[^`]*`", "…", line)
    return re.sub(r"\d+(\.\d+)?", "N", line)[:160]


def _keyword(place: re.Match[str]) -> str:
    """Returns a JSON pointer of which only the keyword at its end is left."""
    last = place[0].rpartition("/")[2]
    return f"#/…/{last}" if last in Draft202012Validator.VALIDATORS else "#/…"


def _sides(pairs: Iterable[tuple[Times, Times]]) -> tuple[list[Times], list[Times]]:
    kept = list(pairs)
    return [ours for ours, _ in kept], [theirs for _, theirs in kept]


def _joined(texts: Sequence[Times]) -> Times:
    return np.concatenate(texts) if texts else np.zeros(0, np.int64)


def _statistics(times: Times) -> dict[str, float]:
    """Returns the number, mean and percentiles (us) of times in ns; {} if there are none."""
    if not len(times):
        return {}
    values = np.percentile(times, list(_PERCENTILES.values())) / 1e3
    return {
        "count": len(times),
        "mean": round(float(times.mean()) / 1e3, 3),
        **dict(zip(_PERCENTILES, values.round(3).tolist(), strict=True)),
        "max": int(times.max()) / 1e3,
    }


def _by_position(texts: Sequence[Times]) -> dict[str, Any]:
    """Returns statistics of all masks, and of those at some positions of their texts."""
    found = {"all": _statistics(_joined(texts))}
    start = 0
    for name, end in _POSITIONS.items():
        found[name] = _statistics(_joined([its[start:end] for its in texts]))
        start = end
    return {name: its for name, its in found.items() if its}
