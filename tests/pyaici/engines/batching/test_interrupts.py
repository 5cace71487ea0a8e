"""Ctrl-C and SIGTERM while the default model is loading or generating."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.system.forked import CLI, TORCH, Forked
from lab.system.processes import family, left_behind
from lab.system.waiting import PATIENCE
from pyaici.models import default_gguf_path, default_model_path
from pyaici.toolchain import build_controller
from tests.thorough import also

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
GUEST = ROOT / "tests" / "guests" / "guest.c"
SIGNALS = [
    (signal.SIGINT, 130, "interrupted\n"),
    (signal.SIGTERM, 143, "ended by SIGTERM\n"),
]


@pytest.fixture(params=["run_hf.py", "run_llama.py"])
def command(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """A command that would run for minutes."""
    (default_gguf_path if request.param == "run_llama.py" else default_model_path)()
    guest = build_controller(GUEST, tmp_path / "guest.wasm").path
    program = [sys.executable, str(ROOT / "harness" / request.param), "--controller", str(guest)]
    return [*program, "--arg", "token 500", "--prompt", "Count.", "--max-tokens", "4000"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    mine = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path), "TERM": "xterm"}
    return {k: v for k, v in os.environ.items() if k != "AICI_SOCKET"} | mine


@pytest.mark.parametrize(("number", "status", "line"), SIGNALS)
def test_an_interrupted_run_shows_its_text_and_leaves_nothing_behind(
    tmp_path: Path,
    command: list[str],
    environment: dict[str, str],
    number: signal.Signals,
    status: int,
    line: str,
) -> None:
    screen, slave = os.openpty()
    _, program, *arguments = command
    imports = (*CLI, *TORCH) if program.endswith("run_hf.py") else CLI
    with (tmp_path / "stderr").open("wb") as err:
        process = Forked(program, arguments, imports=imports, stdout=slave, stderr=err, env=environment)
    os.close(slave)
    out = ""
    try:
        while "\x1b[32m" not in out:  # sampled text is green
            ready, _, _ = select.select([screen], [], [], 120)
            assert ready, "nothing was generated"
            out += os.read(screen, 65536).decode()
        members = family(process.pid)
        assert len(members) > 2, "aicirt and a worker must be running"
        process.send_signal(number)
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(screen, 65536).decode():
                out += part
        assert process.wait(PATIENCE) == status
    finally:
        process.kill()
        os.close(screen)
    told = re.sub(r"llama\.cpp uses \d+ threads?\n", "", (tmp_path / "stderr").read_text())
    assert told == f"{Path(program).name}: {line}"
    assert re.search(r"\d+ tokens? sampled", out) and "(ended: cancelled)" in out
    assert out.rfind("\x1b[?25h") > out.rfind("\x1b[?25l"), "the cursor is still hidden"
    assert left_behind(members) == []
    assert not list(tmp_path.glob("aici-*")), "the runtime's folder is left"


@pytest.mark.parametrize(
    ("seconds", "number", "status", "line"),
    [(0.0, *SIGNALS[0]), (0.7, *SIGNALS[1]), *also((0.7, *SIGNALS[0]), (1.5, *SIGNALS[1]))],
)
def test_loading_can_be_interrupted(
    tmp_path: Path,
    command: list[str],
    environment: dict[str, str],
    seconds: float,
    number: signal.Signals,
    status: int,
    line: str,
) -> None:
    """Sends the signal while aicirt starts, while libraries are imported, or later."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while not list(tmp_path.glob("aici-*")):
                assert process.poll() is None
                time.sleep(0.01)
            time.sleep(seconds)
            members = family(process.pid)
        finally:
            process.send_signal(number)
            _, stderr = process.communicate(timeout=PATIENCE)
    assert process.returncode == status, stderr
    assert stderr.endswith(f"{Path(command[1]).name}: {line}")
    assert "Traceback" not in stderr or "Exception ignored" in stderr
    assert left_behind(members) == []
    assert not list(tmp_path.glob("aici-*"))
