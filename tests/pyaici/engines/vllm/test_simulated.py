"""The tests of this folder again: with each version of vLLM, and with its own worker in the newest one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from lab.system.fetch import ENGINES
from lab.vllm.simulated import VARIABLE
from pyaici.engines.vllm.names import VERSIONS
from tests.thorough import also, cases

pytestmark = [pytest.mark.slow, pytest.mark.real_worker]
FOLDER = Path(__file__).parent
#: files whose tests start servers; all others share engines
SERVERS = ["parallel", "http", "serve", "server"]
#: of the files with configurations that only the simulated worker has (`SIMULATED_ONLY`), those that say most
#: of vLLM's scheduler; the newest version runs all of them
OLDER = ["kept", "scheduler"]
#: files for the code that runs in vLLM's model runners
RUNNERS = ["v2_runner", *also("rows", "logprobs", "scheduler_v2", "drafts")]
OLDEST, NEWEST = sorted(ENGINES["vllm"], key=Version)


def run_again(version: str, files: list[Path]) -> None:
    """Runs files with a version of vLLM. `version`: a value of AICI_TESTED_VLLM."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables.pop("AICI_DURATIONS", None)  # the time counts for this test
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *map(str, files)],
        env=variables | {VARIABLE: version},
        cwd=FOLDER.parents[3],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]
    print(done.stdout.splitlines()[-1])


def test_the_versions_are_all_minors_that_are_accepted() -> None:
    accepted = SpecifierSet(VERSIONS)
    minors = {Version(version).minor for version in ENGINES["vllm"]}
    assert all(version in accepted for version in ENGINES["vllm"])
    assert {minor for minor in range(100) if f"0.{minor}.99" in accepted} == minors and len(minors) == 2


@pytest.mark.parametrize("version", [NEWEST, *also(OLDEST)])
@pytest.mark.parametrize("what", ["engines", "servers"])
def test_with_a_simulated_worker(what: str, version: str) -> None:
    """vLLM's own worker runs the servers, too, except for replicas."""
    servers = [FOLDER / f"test_{name}.py" for name in SERVERS]
    engines = sorted({*FOLDER.glob("test_*.py")} - {*servers})
    run_again(version, engines if what == "engines" else servers[: cases(1, len(servers))])


def test_the_oldest_version_with_a_simulated_worker() -> None:
    run_again(OLDEST, [FOLDER / f"test_{name}.py" for name in OLDER])


@pytest.mark.parametrize("file", RUNNERS)
def test_the_newest_version_with_the_kernels_of_another(file: str) -> None:
    run_again(f"{NEWEST}+cpu", [FOLDER / f"test_{file}.py"])
