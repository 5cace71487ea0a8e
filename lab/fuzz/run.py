"""Runs a fuzz target in a separate process and reads libFuzzer's output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab import ROOT
from lab.fuzz import native, seeds
from lab.fuzz.target import TARGETS

#: limit for one input by the clock: a build with sanitizers is some ten times slower than a guest, and the
#: machine may be busy
_TIMEOUT_S = 600
#: limit for the process: a guest has 64 MiB, which sanitizers multiply
_MEMORY_MB = 1536
#: upper limit of a run on the first inputs alone
_START_S = 120
_STATUS = re.compile(r"#(\d+)\s+\S+\s+cov: (\d+).*?corp: (\d+)")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run."""

    target: str
    executions: int
    per_second: int
    corpus: int
    coverage: int
    #: the file with the input of a finding
    finding: Path | None
    #: the end of libFuzzer's output
    output: str

    def report(self) -> str:
        """Returns a line for each figure, and for a finding its output and the command that repeats it."""
        lines = [
            f"{self.target}.executions {self.executions}",
            f"{self.target}.executions_per_s {self.per_second}",
            f"{self.target}.corpus {self.corpus}",
            f"{self.target}.coverage {self.coverage}",
            f"{self.target}.findings {int(self.finding is not None)}",
        ]
        if self.finding is not None:
            again = f"scripts/fuzz.sh {self.target} --input {self.finding}"
            lines = [self.output, *lines, f"kept as {self.finding}; repeat it with: {again}"]
        return "\n".join(lines)


def folder() -> Path:
    """Returns the folder of corpora and findings."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "aici" / "fuzz"


def run(
    name: str,
    seconds: int | None,
    *,
    executions: int = -1,
    seed: int = 0,
    only: Path | None = None,
    learned: Path | None = None,
) -> Result:
    """Fuzzes a target until the first finding, or for a time, a number of executions, or both.

    A number of `executions` without a time makes the run the same on every machine; -1 is any number. `only`
    is an input to run alone. `learned` is the folder of the corpus, which later runs continue.

    Raises native.NoCompiler.
    """
    target = TARGETS[name]
    findings = folder() / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    learned = learned or folder() / "corpus" / name
    learned.mkdir(parents=True, exist_ok=True)
    command: list[str | Path]
    if target.controller is not None:
        command = [native.build(target.controller), "-close_fd_mask=1"]  # discards the output of controllers
    else:
        command = [sys.executable, "-m", "lab.fuzz.readers", name]
    with tempfile.TemporaryDirectory() as scratch:
        options: list[str | Path] = [f"-timeout={_TIMEOUT_S}", f"-rss_limit_mb={_MEMORY_MB}"]
        # slow inputs are no findings, since the runtime stops guests
        options.append(f"-report_slow_units={_TIMEOUT_S}")
        if target.controller is not None:
            # else inputs that leave memory allocated run again, to look for leaks, which host.cpp turns off
            options.append("-detect_leaks=0")
        if only is not None:
            options.append(only)
        else:
            seeds.write(target.seeds(), Path(scratch) / "seeds")
            options += [f"-max_len={target.longest}", f"-seed={seed}", f"-runs={executions}"]
            options += [] if seconds is None else [f"-max_total_time={seconds}"]
            options += ["-print_final_stats=1", f"-artifact_prefix={findings}/{name}-"]
            options += [learned, Path(scratch) / "seeds"]
        # libFuzzer reads the maximum of the process's memory, which survives an exec: without a process
        # between, it is that of this one
        limit = str(0 if seconds is None else seconds + _START_S)
        between = ["timeout", "--foreground", "--signal=KILL", limit, "setpriv", "--pdeathsig=KILL"]
        done = subprocess.run(
            [*between, *command, *options],
            cwd=ROOT,
            env=os.environ | {"ASAN_SYMBOLIZER_PATH": shutil.which("addr2line") or ""},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    return _read(name, done.stdout, done.returncode, only)


def _read(name: str, output: str, status: int, only: Path | None) -> Result:
    kept = re.search(r"Test unit written to (\S+)", output)
    finding = only if only is not None and status != 0 else Path(kept[1]) if kept else None
    if status != 0 and finding is None:
        raise RuntimeError(f"the fuzz target {name} ended with status {status}:\n{output[-4000:]}")
    last = _STATUS.findall(output)[-1:] or [("0", "0", "0")]
    counted = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    per_second = re.search(r"stat::average_exec_per_sec:\s*(\d+)", output)
    return Result(
        name,
        int(counted[1]) if counted else int(last[0][0]),
        int(per_second[1]) if per_second else 0,
        int(last[0][2]),
        int(last[0][1]),
        finding,
        output[-4000:],
    )
