from __future__ import annotations

import json
from pathlib import Path

import pytest

from aicirt import doctor
from aicirt.doctor import Finding, State
from pyaici.cli.__main__ import main
from pyaici.launch import Daemon


def test_findings_for_people_and_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        Finding("air", State.OK, "fresh"),
        Finding("tea", State.NOTE, "cold", "nobody drinks it", "a kettle"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: found)
    monkeypatch.delenv("AICI_SOCKET", raising=False)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["ok", "air", "fresh"]
    assert lines[1].split() == ["note", "tea", "cold"]
    assert lines[2].strip() == "so nobody drinks it; to mend it: a kettle"
    assert any(line.split()[:2] == ["ok", "ziglang"] for line in lines)
    found.append(Finding("water", State.MISSING, "none", "nobody lives"))
    assert main(["doctor", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert list(rows[1].values()) == ["tea", "note", "cold", "nobody drinks it", "a kettle"]
    assert [row["state"] for row in rows if row["name"] == "water"] == ["missing"]


def test_it_asks_a_daemon(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with Daemon(workers=1) as daemon:
        assert main(["doctor", "--socket", str(daemon.socket_path)]) == 0
        assert f"pid {daemon.pid}, 1 workers, 0 other clients" in capsys.readouterr().out
    assert main(["doctor", "--socket", str(tmp_path / "none.sock")]) == 0
    assert "no aicirt listens on" in capsys.readouterr().out
