"""Runs a fuzz target in a process of its own, and reads what libFuzzer says of it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import native, seeds
from tests.fuzz.target import TARGETS

#: seconds that one input may take: a build with sanitizers is some ten times slower than a guest, and the
#: machine may be busy
_TIMEOUT_S = 60
#: MiB of the process: a guest has 64 MiB, of which sanitizers make several times as much
_MEMORY_MB = 1536
#: a run on the first inputs alone takes this long at most
_START_S = 120
_STATUS = re.compile(r"#(\d+)\s+\S+\s+cov: (\d+).*?corp: (\d+)")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run."""

    target: str
    executions: int
    per_second: int
    corpus: int
    coverage: int
    #: the input of a finding, kept
    finding: Path | None
    #: the end of what libFuzzer said
    words: str

    def report(self) -> str:
        """A line for each figure, and what to do about a finding."""
        lines = [
            f"{self.target}.executions {self.executions}",
            f"{self.target}.executions_per_s {self.per_second}",
            f"{self.target}.corpus {self.corpus}",
            f"{self.target}.coverage {self.coverage}",
            f"{self.target}.findings {int(self.finding is not None)}",
        ]
        if self.finding is not None:
            again = f"scripts/fuzz.sh {self.target} --input {self.finding}"
            lines = [self.words, *lines, f"kept as {self.finding}; run it again: {again}"]
        return "\n".join(lines)


def folder() -> Path:
    """Where corpora and findings are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aici" / "fuzz"


def run(
    name: str,
    seconds: int,
    *,
    executions: int = -1,
    seed: int = 0,
    only: Path | None = None,
    learned: Path | None = None,
) -> Result:
    """Fuzzes a target; ends with the first finding.

    `executions`: after so many it ends too, so that it does the same on every machine; -1: any number.
    `only`: an input that is run alone. `learned`: the folder of inputs that later runs go on from. Raises
    native.NoCompiler.
    """
    target = TARGETS[name]
    findings = folder() / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    learned = learned or folder() / "corpus" / name
    learned.mkdir(parents=True, exist_ok=True)
    command: list[str | Path]
    if target.controller is not None:
        command = [native.build(target.controller), "-close_fd_mask=1"]  # controllers print there
    else:
        command = [sys.executable, "-m", "tests.fuzz.readers", name]
    with tempfile.TemporaryDirectory() as scratch:
        options: list[str | Path] = [f"-timeout={_TIMEOUT_S}", f"-rss_limit_mb={_MEMORY_MB}"]
        options.append(
            f"-report_slow_units={_TIMEOUT_S}"
        )  # what takes less is no finding: guests are stopped
        if only is not None:
            options.append(only)
        else:
            seeds.write(target.seeds(), Path(scratch) / "seeds")
            options += [f"-max_total_time={seconds}", f"-max_len={target.longest}", f"-seed={seed}"]
            options += [f"-runs={executions}"]
            options += ["-print_final_stats=1", f"-artifact_prefix={findings}/{name}-"]
            options += [learned, Path(scratch) / "seeds"]
        done = subprocess.run(
            [*command, *options],
            cwd=seeds.ROOT,
            env=os.environ | {"ASAN_SYMBOLIZER_PATH": shutil.which("addr2line") or ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
            timeout=seconds + _START_S,
        )
    return _read(name, done.stdout, done.returncode, only)


def _read(name: str, said: str, status: int, only: Path | None) -> Result:
    kept = re.search(r"Test unit written to (\S+)", said)
    finding = only if only is not None and status != 0 else Path(kept[1]) if kept else None
    if status != 0 and finding is None:
        raise RuntimeError(f"the fuzz target {name} ended with status {status}:\n{said[-4000:]}")
    last = _STATUS.findall(said)[-1:] or [("0", "0", "0")]
    counted = re.search(r"stat::number_of_executed_units:\s*(\d+)", said)
    per_second = re.search(r"stat::average_exec_per_sec:\s*(\d+)", said)
    return Result(
        name,
        int(counted[1]) if counted else int(last[0][0]),
        int(per_second[1]) if per_second else 0,
        int(last[0][2]),
        int(last[0][1]),
        finding,
        said[-4000:],
    )
