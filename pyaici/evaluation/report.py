"""The report of an evaluation: files of JSON lines, a table and a plot."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyaici.evaluation.experiment import TIMES, Outcome
from pyaici.evaluation.metrics import Estimate, by_row, difference, mean

if TYPE_CHECKING:
    from rich.table import Table

CONTROLLER, BASELINE = "controller", "baseline"
#: what each outcome counts, besides the metrics
COUNTS = ("sampled", "forced", "backtracked", "sequences", "passes")
_LABELS = {
    "sampled": "tokens sampled",
    "forced": "tokens forced",
    "backtracked": "tokens backtracked",
    "passes": "forward passes",
    "control_seconds": "of these, controllers",
}


def read_results(path: str | Path) -> list[dict[str, Any]]:
    """Reads the results of an earlier evaluation. Raises OSError, and ValueError if it has none."""
    try:
        found = [json.loads(line) for line in Path(path).read_text("utf-8").splitlines() if line]
    except (ValueError, RecursionError):
        found = []
    if not found or not all(isinstance(each, dict) and "metrics" in each for each in found):
        raise ValueError(f"{path} is not a results.jsonl of aici eval")
    return found


class Report:
    """Figures of the outcomes of all variants."""

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self._outcomes = list(outcomes)
        #: with times
        self._rows = [{**each.result(), **each.times()} for each in self._outcomes]
        self.variants = list(dict.fromkeys(each.variant for each in self._outcomes))
        self.metrics = list(self._outcomes[0].metrics)

    @property
    def errors(self) -> dict[str, int]:
        """The number of outcomes with an error, by variant."""
        return {
            name: sum(each.error is not None for each in self._outcomes if each.variant == name)
            for name in self.variants
        }

    def rows(self, variant: str, name: str) -> dict[str, float]:
        """Returns a metric, count or time of each row, the mean of its seeds."""
        return by_row(self._rows, variant, name)

    def estimate(self, variant: str, name: str) -> Estimate:
        """Returns the mean of a metric, count or time over the rows."""
        return mean(list(self.rows(variant, name).values()))

    def gain(self, name: str) -> Estimate | None:
        """Returns how much the controller adds to the baseline; None if there is none."""
        if BASELINE not in self.variants:
            return None
        return difference(self.rows(CONTROLLER, name), self.rows(BASELINE, name))

    def regressions(self, earlier: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Estimate]]:
        """Yields each metric that both evaluations have, and how much the controller's has changed.

        Raises ValueError if they have no row in common.
        """
        known = {name for result in earlier for name in result["metrics"]}
        for name in self.metrics:
            if name in known:
                yield name, difference(self.rows(CONTROLLER, name), by_row(earlier, CONTROLLER, name))

    def write(self, folder: Path) -> None:
        """Writes results.jsonl, times.jsonl, summary.json and plot.svg. All but the second are repeatable."""
        folder.mkdir(parents=True, exist_ok=True)
        _write_lines(folder / "results.jsonl", (each.result() for each in self._outcomes))
        _write_lines(folder / "times.jsonl", (each.times() for each in self._outcomes))
        summary = {
            "rows": len(self.rows(CONTROLLER, "passes")),
            "seeds": len({each.seed for each in self._outcomes}),
            "errors": self.errors,
            **{
                variant: {name: _members(self.estimate(variant, name)) for name in self._repeatable}
                for variant in self.variants
            },
            "gain": {name: _members(gain) for name in self._repeatable if (gain := self.gain(name))},
        }
        (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
        (folder / "plot.svg").write_text(plot(self), encoding="utf-8")

    @property
    def _repeatable(self) -> list[str]:
        return [*self.metrics, *COUNTS]

    def table(self) -> Table:
        """Returns the table of all figures."""
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("mean [95 % interval]", no_wrap=True)
        for variant in self.variants:
            table.add_column(variant, justify="right", no_wrap=True)
        paired = BASELINE in self.variants
        if paired:
            table.add_column("difference", justify="right", no_wrap=True)
        for name in (*self._repeatable, *TIMES):
            cells = [_cell(self.estimate(variant, name)) for variant in self.variants]
            if (gain := self.gain(name)) is not None:
                cells.append(_cell(gain, sign="+"))
            table.add_row(_LABELS.get(name, name), *cells)
        table.add_row("errors", *(str(self.errors[variant]) for variant in self.variants))
        return table


def _cell(estimate: Estimate, sign: str = "") -> str:
    value, low, high = (f"{each:{sign}.3g}" for each in (estimate.value, estimate.low, estimate.high))
    return f"{value} \\[{low}, {high}]"


def _members(estimate: Estimate) -> dict[str, float]:
    return {"mean": estimate.value, "low": estimate.low, "high": estimate.high}


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


# -- the plot --------------------------------------------------------------------------------------------

#: pixels: the names of variants, an interval's axis, and the margin for its numbers; the height of a line
_NAMES, _AXIS, _NUMBERS, _LINE = 110, 420, 120, 22
_COLOURS = {CONTROLLER: "#0b6e4f", BASELINE: "#8a8a8a"}


def plot(report: Report) -> str:
    """Returns an SVG with the mean and the interval of each metric and of the tokens and passes."""
    parts: list[str] = []
    top = 0
    for name in (*report.metrics, "sampled", "passes"):
        estimates = {variant: report.estimate(variant, name) for variant in report.variants}
        label = escape(_LABELS.get(name, name))
        parts.append(f'<text x="0" y="{top + 16}" font-weight="bold">{label}</text>')
        largest = max(1e-9, *(abs(each) for one in estimates.values() for each in (one.low, one.high)))
        least = min(0.0, *(one.low for one in estimates.values()))
        scale = _AXIS / (largest - least)
        for place, (variant, one) in enumerate(estimates.items(), 1):
            y = top + place * _LINE + 10
            low, middle, high = (_NAMES + (each - least) * scale for each in (one.low, one.value, one.high))
            colour = _COLOURS.get(variant, "black")
            parts += [
                f'<text x="10" y="{y + 5}">{escape(variant)}</text>',
                f'<path d="M{low:.1f} {y}H{high:.1f}" stroke="{colour}" stroke-width="2"/>',
                f'<circle cx="{middle:.1f}" cy="{y}" r="4" fill="{colour}"/>',
                f'<text x="{_NAMES + _AXIS + 10}" y="{y + 5}">{one.value:.3g}</text>',
            ]
        top += (len(estimates) + 1) * _LINE + 8
    size = f'width="{_NAMES + _AXIS + _NUMBERS}" height="{top + 8}"'
    style = 'font-family="sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n' + "\n".join(parts) + "\n</svg>\n"
