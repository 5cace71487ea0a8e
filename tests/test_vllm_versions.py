"""`scripts/vllm_versions.sh`, with a package index that pip serves from a folder."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pyaici.engines.vllm.names import NAMES
from tests import vllm_versions

ROOT = Path(__file__).resolve().parents[1]


def wheel(folder: Path, version: str, files: dict[str, str]) -> None:
    """Writes a wheel of vllm."""
    info = f"vllm-{version}.dist-info"
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"vllm-{version}-py3-none-any.whl", "w") as made:
        for name, text in files.items():
            made.writestr(name, text)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three versions of a vLLM that consists of classes without the names that AICI needs."""
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONSTRAINT", "/dev/null")
    for version in ("0.31.0", "0.32.0", "0.32.1"):
        wheel(tmp_path, version, {"vllm/__init__.py": "class LLM: ...\n__version__ = ''\n"})
    return tmp_path


def test_a_line_for_each_version_says_what_is_missing(
    index: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert vllm_versions.main(["--package", "vllm", "--range", ">=0.32"]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("vllm 0.32.0: vllm.SamplingParams is missing; ")
    assert second.startswith("vllm 0.32.1: ") and "Scheduler is missing" in second
    assert not list(index.glob("*.dist-info"))


def test_a_version_with_all_names_is_good(
    index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_versions, "differences", lambda find: [] if find("vllm", "LLM") else ["?"])
    assert vllm_versions.main(["--package", "vllm", "--range", "==0.31.*"]) == 0
    assert capsys.readouterr().out == "vllm 0.31.0: has all names\n"


def test_a_range_without_versions_is_an_error(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert vllm_versions.main(["--package", "vllm", "--range", ">=9"]) == 1
    assert "no version in >=9" in capsys.readouterr().out


def test_a_full_disk_is_reported(
    index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_versions, "_WHEEL_GB", 10**9)
    assert vllm_versions.main(["--package", "vllm", "--range", "==0.31.*"]) == 1
    assert "set TMPDIR to another folder" in capsys.readouterr().out


def test_help_explains_the_script() -> None:
    command = [sys.executable, "-m", "tests.vllm_versions", "--help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert "scripts/vllm_versions.sh --range" in text and "reads its source without importing it" in text


def test_the_tests_to_run_exist() -> None:
    assert all((ROOT / name).exists() for name in vllm_versions.TESTS) and "vllm.v1" in NAMES
