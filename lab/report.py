"""The report of a suite: JSON, a plot, and lines of output for programs."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import ROOT
from lab.measurement.timing import summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: versions that a figure may depend on
_PACKAGES = (
    "pyaici",
    "wasmtime",
    "numpy",
    "torch",
    "transformers",
    "llguidance",
    "xgrammar",
    "xllamacpp",
    "outlines-core",
    "kbnf",
    "ziglang",
)


class CannotRunError(RuntimeError):
    """This machine lacks what a suite needs."""


@dataclass(frozen=True)
class Figure:
    """A number of a report. `target` is its upper limit, if there is one."""

    name: str
    value: float
    unit: str
    target: float | None = None

    def line(self) -> str:
        """``name value unit``, the value with four digits."""
        return f"{self.name} {self.value:.4g} {self.unit}"


@dataclass
class Report:
    """Collects the figures of one suite."""

    suite: str
    #: run a short form, which only shows that the suite works
    quick: bool = False
    #: options of the suite; the command leaves out those without a value
    options: Mapping[str, Any] = field(default_factory=dict)
    #: the command that repeats the measurement; default: the command of a suite
    command: str = ""
    figures: list[Figure] = field(default_factory=list)
    #: more about the figures, for JSON
    details: dict[str, Any] = field(default_factory=dict)
    #: what this machine did not allow, and why
    omissions: dict[str, str] = field(default_factory=dict)
    _samples: dict[str, tuple[str, list[float]]] = field(default_factory=dict)

    def figure(self, name: str, value: float, unit: str, *, target: float | None = None) -> None:
        """Adds a figure, for example ``report.figure("step.critical_ms.10", 0.12, "ms", target=0.15)``."""
        self.figures.append(Figure(name, value, unit, target))

    def samples(self, name: str, values: Sequence[float], unit: str) -> None:
        """Adds the samples behind a figure. The JSON has their statistics, the plot a curve."""
        self._samples[name] = (unit, list(values))

    def not_tried(self, what: str, why: str) -> None:
        """Says what is not measured, because this machine does not allow it."""
        self.omissions[what] = why

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Writes ``SUITE.json`` and ``SUITE.png``; returns their paths."""
        data, plot = self.write_data(folder), folder / f"{self.suite}.png"
        self._plot(plot)
        return data, plot

    def write_data(self, folder: Path) -> Path:
        """Writes ``SUITE.json`` alone."""
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / f"{self.suite}.json"
        data.write_text(json.dumps(self._to_json(), indent=2) + "\n")
        return data

    def _command(self) -> str:
        words = [self.suite, *(["--quick"] if self.quick else [])]
        for name, value in self.options.items():
            words += [] if value is None else [f"--{name}"] if value is True else [f"--{name}", str(value)]
        return self.command or f"./scripts/bench.sh {shlex.join(words)}"

    def _to_json(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "command": self._command(),
            "machine": describe_machine(),
            "figures": [asdict(figure) for figure in self.figures],
            "not_tried": self.omissions,
            "details": self.details,
            "samples": {
                name: {"unit": unit, **asdict(summarise(values))}
                for name, (unit, values) in self._samples.items()
            },
        }

    def _plot(self, path: Path) -> None:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        units = list(dict.fromkeys(figure.unit for figure in self.figures))
        sampled = list(dict.fromkeys(unit for unit, _ in self._samples.values()))
        count = len(units) + len(sampled)
        heights = [1 + 0.3 * sum(f.unit == unit for f in self.figures) for unit in units]
        heights += [3.0] * len(sampled)
        canvas, grid = pyplot.subplots(
            *(count, 1), figsize=(9, sum(heights)), height_ratios=heights, squeeze=False, layout="constrained"
        )
        for axes, unit in zip(grid[: len(units), 0], units, strict=True):
            _bars(axes, [figure for figure in self.figures if figure.unit == unit], unit)
        for axes, unit in zip(grid[len(units) :, 0], sampled, strict=True):
            curves = {name: values for name, (its, values) in self._samples.items() if its == unit}
            _curves(axes, curves, unit)
        canvas.suptitle(self._command())
        canvas.savefig(path, dpi=100)
        pyplot.close(canvas)


def _bars(axes: Axes, figures: list[Figure], unit: str) -> None:
    names = [figure.name for figure in figures]
    bars = axes.barh(names, [figure.value for figure in figures])
    axes.bar_label(bars, fmt="%.4g", padding=3)
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    for place, figure in enumerate(figures):
        if figure.target is not None:
            axes.plot([figure.target] * 2, [place - 0.4, place + 0.4], color="black", linewidth=2)
    axes.margins(x=0.15)


def _curves(axes: Axes, curves: dict[str, list[float]], unit: str) -> None:
    for name, values in curves.items():
        axes.ecdf(values, label=name)
    axes.set_xlabel(unit)
    axes.set_ylabel("fraction of samples below")
    axes.set_xscale("log")
    axes.legend()


def describe_machine() -> dict[str, Any]:
    """Describes what figures depend on: processor, GPU, load, kernel, versions and commit."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    torch = sys.modules.get("torch")  # only a suite that imports it uses a GPU
    return {
        "processor": _processor(),
        "gpu": torch.cuda.get_device_name() if torch is not None and torch.cuda.is_available() else None,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": versions,
        "commit": _commit(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str | None:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
