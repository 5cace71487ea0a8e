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
from pyaici.engines.vllm.versions import VERSIONS
from tests.thorough import also, thorough

pytestmark = [pytest.mark.slow, pytest.mark.real_worker]
FOLDER = Path(__file__).parent
#: files whose servers vLLM's own worker has, too, without replicas
SERVERS = ["http", "serve", "server"]
#: files for the code that runs in vLLM's model runners
RUNNERS = ["v2_runner", *also("rows", "logprobs", "scheduler_v2", "drafts")]
OLDEST, NEWEST = sorted(ENGINES["vllm"], key=Version)


def run_again(version: str, *arguments: str) -> None:
    """Runs tests with a version of vLLM. `version`: a value of AICI_TESTED_VLLM. `arguments`: of pytest."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    variables.pop("AICI_DURATIONS", None)  # the time counts for this test
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *arguments],
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
def test_with_a_simulated_worker(version: str) -> None:
    """The oldest version has vLLM's own worker, with a scheduler that preempts in test_scheduler.py."""
    left_out = [] if thorough() else SERVERS
    # not the names of files: each of them would run whole, with tests for --thorough
    run_again(version, str(FOLDER), *(f"--ignore={FOLDER}/test_{name}.py" for name in left_out))


@pytest.mark.parametrize("file", RUNNERS)
def test_the_newest_version_with_the_kernels_of_another(file: str) -> None:
    run_again(f"{NEWEST}+cpu", str(FOLDER / f"test_{file}.py"))
