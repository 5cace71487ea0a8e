"""How long the tests take: durations that were measured, and the yardstick that applies them to a machine.

``python -m tests.durations`` prints the files that take longest. After a run with `AICI_DURATIONS=FILE`,
which tests/recorder.py logs, ``--write FILE`` brings tests/durations.json up to date. ``--plan`` is for
scripts/test.sh: it prints what to run, by how much this machine is slower than a good one, whether vLLM's
tests run beside the others, and a sentence about the time it will take.

It needs no packages: scripts/test.sh runs it before there is an environment.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median_low
from typing import NamedTuple

from aicirt.system import pace
from aicirt.system.resources import free_bytes, usable_cpus

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "durations.json"
VLLM = Path("tests/pyaici/engines/vllm")
#: processor seconds of a good machine that `--quick` may take: two and a half minutes of two cores
QUICK_S = 300.0
#: part of the processors' time that the tests use: they also wait for timers, disks and the last worker
_USED = 0.8
#: the same where vLLM's tests run beside the others, with a process more than others have
_USED_BESIDE = 0.9
#: bytes of memory that both need
_BESIDE_BYTES = 12e9
#: processes of pytest in each environment: scripts/test.sh has the same numbers
_MAX_WORKERS = {False: 4, True: 2}
#: seconds of a good machine that create an environment, with its downloads: .venv and all tools, .venv-vllm
_SET_UP_S = {False: 300.0, True: 120.0}


class Yardstick(NamedTuple):
    """The seconds of a loop: of the processor, and by the wall clock, which includes the time of others."""

    cpu: float
    wall: float


def yardstick(additions: int = 5_000_000) -> Yardstick:
    """Measures a Python loop of five million additions, or estimates it from fewer."""
    start = time.monotonic()
    cpu = pace.yardstick(additions)
    return Yardstick(cpu, (time.monotonic() - start) * 5_000_000 / additions)


@dataclass(frozen=True)
class Duration:
    """The processor seconds of a file's tests on a good machine, children included."""

    tests: int
    setup: float
    call: float
    teardown: float
    #: a test of median length, and what it takes alone with its fixtures
    sample: str
    sample_s: float

    @property
    def total(self) -> float:
        return self.setup + self.call + self.teardown


#: for a file that has not been measured: about the mean of the others
UNKNOWN = Duration(tests=1, setup=1, call=5, teardown=0, sample="", sample_s=1.5)


def read_durations() -> dict[str, Duration]:
    """Returns the duration of each file, by its path relative to the root."""
    table = json.loads(TABLE.read_text())
    paths = (path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py"))
    return {name: Duration(**table[name]) if name in table else UNKNOWN for name in paths}


def read_logs(logs: Iterable[Path]) -> dict[str, Duration]:
    """Returns the durations that tests/recorder.py has logged."""
    yardsticks: list[float] = []
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for log in logs:
        for entry in map(json.loads, log.read_text().splitlines()):
            if "yardstick" in entry:
                yardsticks.append(entry["yardstick"])
            else:
                file, _, name = entry["test"].partition("::")
                found[file][name][entry["phase"]] = entry["cpu"]
    scale = pace.GOOD_SECONDS / mean(yardsticks)
    durations = {}
    for file, tests in found.items():
        sums = {
            phase: round(scale * sum(phases.get(phase, 0) for phases in tests.values()), 2)
            for phase in ("setup", "call", "teardown")
        }
        calls = {name: phases.get("call", 0) for name, phases in tests.items()}
        sample = min(name for name in calls if calls[name] == median_low(calls.values()))
        # its fixtures may have been made by another test
        fixtures = sum(
            max(phases.get(phase, 0) for phases in tests.values()) for phase in ("setup", "teardown")
        )
        durations[file] = Duration(
            len(tests), **sums, sample=sample, sample_s=round(scale * (fixtures + calls[sample]), 2)
        )
    return durations


def write_durations(durations: dict[str, Duration]) -> None:
    """Writes the table: a line for each file that exists and was measured."""
    lines = (
        f"{json.dumps(name)}: {json.dumps(asdict(duration))}"
        for name, duration in sorted(durations.items())
        if (ROOT / name).is_file() and duration != UNKNOWN
    )
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def expected(durations: dict[str, Duration], paths: Sequence[Path] = ()) -> dict[bool, float]:
    """Returns the processor seconds of the tests under some paths on a good machine; of vLLM's under True."""
    seconds = {False: 0.0, True: 0.0}
    for name, duration in durations.items():
        if any(Path(name).is_relative_to(path) for path in paths) if paths else _is_usual(ROOT / name):
            seconds[Path(name).is_relative_to(VLLM)] += duration.total
    return seconds


def _is_usual(path: Path) -> bool:
    """Tells whether a file runs if nobody names it, without `--thorough`: see CONTRIBUTING.md."""
    marks = re.search(r"^pytestmark = .*$", path.read_text(), re.MULTILINE) if path.is_file() else None
    return marks is None or re.search(r"mark\.(any_worker|thorough)\b", marks[0]) is None


@dataclass(frozen=True)
class Machine:
    """This machine, as far as the time of the tests depends on it."""

    yardstick: Yardstick
    processors: float
    #: bytes that are free
    memory: float
    has_main: bool
    has_vllm: bool

    @property
    def beside(self) -> bool:
        """Whether it has room for vLLM's tests beside the others."""
        return self.processors >= 2 and self.memory >= _BESIDE_BYTES

    @property
    def slower(self) -> float:
        """By how much a process takes longer than alone on a good machine."""
        return max(self.yardstick.wall, self.yardstick.cpu) / pace.GOOD_SECONDS

    def minutes(self, seconds: dict[bool, float]) -> float:
        """Returns how long tests take with their set-up, from their processor seconds on a good machine."""
        has = {False: self.has_main, True: self.has_vllm}
        set_up = sum(_SET_UP_S[where] for where in seconds if seconds[where] and not has[where])
        if self.beside and all(seconds.values()):
            workers = min(self.processors, _MAX_WORKERS[False] + 1)
            work = max(sum(seconds.values()) / workers / _USED_BESIDE, seconds[True])
        else:
            workers = max(self.processors, 0.1)
            work = sum(seconds[where] / min(workers, _MAX_WORKERS[where]) / _USED for where in seconds)
        return (work + set_up) * self.slower / 60


def this_machine() -> Machine:
    """Measures this machine: the median of three loops, since others may use it for a moment."""
    loop = sorted((yardstick() for _ in range(3)), key=lambda found: found.wall)[1]
    has = [(ROOT / name / ".aici-installed").is_file() for name in (".venv", ".venv-vllm")]
    return Machine(loop, usable_cpus(), free_bytes(), *has)


def plan(
    machine: Machine, durations: dict[str, Duration], choice: str, paths: Sequence[Path]
) -> Iterator[str]:
    """Yields what to run (``all`` or ``quick``), how many times longer to wait for a test, when vLLM's tests
    run (``beside`` the others or ``after`` them), and the reason.

    `choice` is ``all``, ``quick``, or the number of minutes within which all tests must end.
    """
    whole = machine.minutes(expected(durations, paths))
    loop = f"the loop of five million additions takes {machine.yardstick.cpu:.2f} s of processor time"
    if machine.yardstick.wall > 1.2 * machine.yardstick.cpu:
        loop += f" and {machine.yardstick.wall:.2f} s by the clock"
    here = f"{loop}, with {machine.processors:g} processors"
    quick = choice == "quick" or (choice != "all" and whole > float(choice))
    yield "quick" if quick else "all"
    yield str(math.ceil(max(machine.slower, 1)))
    yield "beside" if machine.beside and not quick else "after"
    vllm = expected(durations, paths)[True] > 0 and machine.has_vllm
    short = machine.minutes({False: QUICK_S * (0.8 if vllm else 1), True: QUICK_S * 0.2 if vllm else 0})
    what = "a short selection of tests" if quick else "these tests" if paths else "all tests"
    takes = f"{what}: about {short if quick else whole:.0f} min here"
    if choice not in ("all", "quick"):
        than = f"all would take {whole:.0f}, more than the" if quick else "at most the"
        takes += f" ({than} {choice} min that are allowed)"
    yield f"{takes}: {here}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.durations", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--write", type=Path, nargs="+", metavar="LOG", help="put what was logged into the table"
    )
    parser.add_argument(
        "--plan", metavar="CHOICE", help="all, quick, or the minutes within which all must end"
    )
    parser.add_argument("paths", nargs="*", type=Path, help="the tests of the plan; default: all")
    arguments = parser.parse_args()
    if arguments.write:
        known = read_durations() if TABLE.is_file() else {}
        write_durations(known | read_logs(arguments.write))
    elif arguments.plan:
        print("\n".join(plan(this_machine(), read_durations(), arguments.plan, arguments.paths)))
    else:
        durations = read_durations()
        for name, found in sorted(durations.items(), key=lambda pair: -pair[1].total):
            print(f"{found.total:8.1f} s {found.tests:5} tests  {name}")
        print(f"{sum(found.total for found in durations.values()):8.1f} s in all")


if __name__ == "__main__":
    main()
