"""`scripts/vllm_versions.sh`, with a package index that pip serves from a folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests import vllm_versions
from tests.vllm_versions import Trial, report

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version of a vLLM that consists of a class without the names that AICI needs."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONSTRAINT", "/dev/null")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    info = "vllm-0.99.0.dist-info"
    files = {
        "vllm/__init__.py": "class LLM: ...\n__version__ = ''\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 0.99.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(tmp_path / "vllm-0.99.0-py3-none-any.whl", "w") as made:
        for name, text in files.items():
            made.writestr(name, text)


@pytest.mark.usefixtures("index")
def test_a_version_without_names_is_told_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert vllm_versions.main(["--names", "0.99.0", "0.98.0"]) == 1
    _, _, found, missing, *lines = capsys.readouterr().out.splitlines()
    assert found.startswith("| 0.99.0 | ") and found.endswith(" differ | not run |")
    assert missing.startswith("| 0.98.0 | ") and "No matching distribution" in missing
    assert "0.99.0: vllm.SamplingParams is missing" in lines


@pytest.mark.usefixtures("index")
def test_a_version_with_all_names_is_good(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_versions, "differences", lambda find: [] if find("vllm", "LLM") else ["?"])
    assert vllm_versions.main(["--names", "0.99.0"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "| 0.99.0 | all there | not run |"


def test_failed_tests_are_listed() -> None:
    trial = Trial("0.99.0", tests="1 failed, 2 passed in 3.00s", failed=["FAILED tests/x.py::test_y"])
    assert not trial.good and not Trial("0.99.0", tests="no tests ran").good
    assert report([trial]).splitlines()[2:] == [
        "| 0.99.0 | all there | 1 failed, 2 passed in 3.00s |",
        "0.99.0: FAILED tests/x.py::test_y",
    ]


def test_help_explains_the_script() -> None:
    command = [sys.executable, "-m", "tests.vllm_versions", "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "scripts/vllm_versions.sh 0.34.0" in text and "a simulated worker" in text
