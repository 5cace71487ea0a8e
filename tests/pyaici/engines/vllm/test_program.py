"""harness/run_vllm.py: whole runs of the default model, recordings, interrupts and errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from lab.system.forked import VLLM, Forked, run_forked
from lab.system.processes import family, left_behind
from pyaici.cli.__main__ import main as aici
from pyaici.engines.vllm import program
from pyaici.models import default_model_path
from pyaici.toolchain import build_controller
from tests.thorough import also

pytestmark = pytest.mark.real_worker
ROOT = Path(__file__).resolve().parents[4]
GUEST = ROOT / "tests" / "guests" / "guest.c"
PROGRAM = ROOT / "harness" / "run_vllm.py"
#: options for GUEST with which a run would take minutes
LONG = ["--arg", "token 500", "--prompt", "Count.", "--max-tokens", "4000"]

YESNO = ["--controller", "yesno", "--prompt", "x"]
#: uses all verbs, and random numbers without a given seed
SCRIPT = """
import random
from aici import arg, backtrack, call, force, fork, gen, label, set_var

async def main():
    await force(f"{random.randrange(10**9)} is")
    place = label()
    print(await gen(regex=" [a-z]{3,6}", max_tokens=4), arg)
    await backtrack(place)
    half = call("half", 8)
    mine = await fork(2)
    await force(f" {mine}, {await half}:")
    set_var(f"said{mine}", await gen(stop="e", max_tokens=9))
"""


def environment(folder: Path) -> dict[str, str]:
    mine = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    return {name: value for name, value in os.environ.items() if name != "AICI_SOCKET"} | mine


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return run_forked(str(PROGRAM), *argv, imports=VLLM, env=environment(folder))


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must fail before vLLM starts. Returns its stderr."""

    def run(*argv: str) -> str:
        def started(*_: object) -> NoReturn:
            raise AssertionError("vLLM was started")

        monkeypatch.setattr(program, "_generate", started)
        assert program.main(list(argv)) == 1
        return capsys.readouterr().err

    return run


@pytest.mark.slow
def test_a_run_without_options_shows_the_example(tmp_path: Path) -> None:
    default_model_path()  # otherwise the program would say that it waits for a test that prepares the model
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"vLLM started in .* s\n", done.stderr)
    shown = r"""(?s)prompt  sampled  «forced».*
#0 \(ended: stop\)
.*Visitors to Paris climb the Eiffel Tower.*
«\{
  "name": "»Eiffel Tower",«
  "city": "»Paris",«
  "built": 1»889«,
  "metres": »330
\}

[0-9]+ tokens sampled, [0-9]+ forced, 0 backtracked, 0 forks in .* s \(.* tokens/s\)
"""
    assert re.fullmatch(shown, done.stdout)
    assert not list(tmp_path.glob("aici-*")), "the runtime's folder is left"


# test_copies.py has copies, and tests/pyaici/engines/test_terminal.py shows sequences
@pytest.mark.thorough
@pytest.mark.slow
def test_several_sequences(tmp_path: Path, model_path: Path) -> None:
    pattern = tmp_path / "pattern.txt"
    pattern.write_text("[a-z]{3} [0-9]{2}\\.\n")
    question = ["--model", str(model_path), "--prompt", "Hello", "--no-chat"]
    question += ["--n", "2", "--temperature", "0.8", "--seed", "1"]
    done = run(tmp_path, "--controller", "regex", "--arg", f"@{pattern}", *question)
    assert done.returncode == 0, done.stderr
    text = r"[a-z]{3} [0-9]{2}\."
    shown = rf"^#0 \(ended: stop\)\nHello{text}\n\n#1, forked from #0 \(ended: stop\)\n{text}$"
    assert re.search(shown, done.stdout, re.MULTILINE), done.stdout


@pytest.mark.slow
def test_aici_run_finds_an_upload(tmp_path: Path, model_path: Path) -> None:
    store = ["--store", str(tmp_path / "store")]
    assert aici(["upload", "regex", "--tag", "mine", *store]) == 0
    command = ["run", "mine", "--engine", "vllm", *store]
    command += ["--arg", "[0-9]{3}!", "--prompt", "Hi", "--no-chat", "--model", str(model_path)]
    done = run_forked("pyaici.cli", *command, imports=VLLM, env=environment(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^#0 \(ended: \w+\)\nHi[0-9]{3}!$", done.stdout, re.MULTILINE)


def test_a_model_with_python_files_needs_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.py").write_text("raise SystemExit('has run')")
    (tmp_path / "config.json").write_text(
        '{"model_type": "own", "auto_map": {"AutoConfig": "own.OwnConfig"}}'
    )
    assert program.main(["--prompt", "x", "--model", str(tmp_path)]) == 1
    assert f"loading {tmp_path} would run Python files" in (message := capsys.readouterr().err)
    assert "add --trust-remote-code" in message


# test_failures.py has the error, and tests/pyaici/server/test_remote.py the same words on the screen
@pytest.mark.thorough
@pytest.mark.slow
def test_a_controller_that_fails_is_shown_as_an_error(tmp_path: Path) -> None:
    guest = build_controller(GUEST, tmp_path / "guest.wasm").path
    done = run(tmp_path, "--controller", str(guest), "--arg", "mid_trap", "--prompt", "Hi")
    assert done.returncode == 1, done.stderr
    assert "#0 (ended: error)" in done.stdout and "error: " in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_recording_is_replayed_without_vllm(
    tmp_path: Path, model_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text(SCRIPT)
    Path("tools.py").write_text("def half(number):\n    return number // 2\n")
    options = ["--model", str(model_path), "--controller", "script.py", "--arg", "[7]", "--prompt", "Hello"]
    done = run(tmp_path, *options, "--temperature", "0.8", "--calls", "tools.py", "--record", "r.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("recorded: aici test script.py --transcript r.json\n")
    recording = json.loads(Path("r.json").read_text())
    first, second = recording["sequences"]
    assert second["parent"] == 0 and (first["finish_reason"], second["finish_reason"]) == ("stop", "stop")
    assert first["log"].endswith(" [7]\n") and set(recording["variables"]) == {"said0", "said1"}
    assert [call["name"] for call in recording["calls"]] == ["half"]
    assert all(step["allowed"] for one in recording["sequences"] for step in one["steps"] if "sample" in step)
    command = ["test", "script.py", "--transcript", "r.json"]
    assert aici([*command, "--masks"]) == 0, capsys.readouterr().out
    assert "of the default model" in capsys.readouterr().out
    Path("script.py").write_text(SCRIPT.replace(" is", " was"))
    assert aici(command) == 1
    assert " was" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "generating"),
    [
        (signal.SIGINT, True),
        # an import takes ten seconds; batching/test_interrupts.py interrupts the start of other engines
        *also((signal.SIGTERM, False), (signal.SIGTERM, True), (signal.SIGINT, False)),
    ],
)
def test_a_signal_ends_a_run_and_leaves_nothing_behind(
    tmp_path: Path, number: signal.Signals, generating: bool
) -> None:
    """Sends the signal while the model generates, or while vLLM is imported and starts."""
    guest = build_controller(GUEST, tmp_path / "guest.wasm").path
    command = ["--controller", str(guest), *LONG]  # four layers would end the text at once
    log = tmp_path / "log"
    with log.open("wb") as errors:
        process: Forked | subprocess.Popen[bytes]
        if generating:
            process = Forked(
                str(PROGRAM), command, imports=VLLM, stdout=errors, stderr=errors, env=environment(tmp_path)
            )
        else:
            process = subprocess.Popen(
                [sys.executable, PROGRAM, *command], stdout=errors, stderr=errors, env=environment(tmp_path)
            )
    try:
        while "vLLM started" not in log.read_text() if generating else not list(tmp_path.glob("aici-*")):
            assert process.poll() is None
            time.sleep(0.01)
        while len(members := family(process.pid)) < 3:  # aicirt and a worker
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(1)
        members |= family(process.pid)
    finally:
        process.send_signal(number)
        process.wait()
    stderr = log.read_text()
    status, line = {
        signal.SIGINT: (130, "run_vllm.py: interrupted\n"),
        signal.SIGTERM: (143, "run_vllm.py: ended by SIGTERM\n"),
    }[number]
    assert process.returncode == status and stderr.endswith(line)
    assert "Traceback" not in stderr or "Exception ignored" in stderr
    assert left_behind(members) == []
    assert not list(tmp_path.glob("aici-*"))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--controller", "yesno"], "--prompt"),
        (["--controller", "no such thing", "--prompt", "x"], "no such thing"),
        (["--prompt", "x", "--arg", "y"], "--arg needs a controller"),
        (["--prompt", "x", "--model", "/nowhere"], "/nowhere"),
        (["--prompt", "@/no/file"], "--prompt: cannot read '/no/file'"),
        (["--controller", "regex", "--prompt", "x"], "the pattern is empty"),
        (["--prompt", "x", "--record", "r.json"], "--record needs a controller"),
        ([*YESNO, "--record", "r.json", "--n", "2"], "forks: leave out --n\n"),
        ([*YESNO, "--record", "/"], "cannot write /: it is a folder"),
        (["--controller", "regex", "--prompt", "x", "--arg", "[a-"], "column 1: this class is not closed"),
    ],
)
def test_invalid_options_are_refused_before_vllm_starts(
    argv: list[str], words: str, refused: Callable[..., str]
) -> None:
    assert words in refused(*argv)


def test_a_run_is_refused_if_vllm_does_not_load_aici(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "other")
    assert "leaves the AICI plugin out" in refused("--controller", "yesno", "--prompt", "x")
    monkeypatch.delenv("VLLM_PLUGINS")
    known: Any = lambda **_: ()  # noqa: E731
    monkeypatch.setattr("importlib.metadata.entry_points", known)
    assert "vLLM does not find the AICI plugin" in refused("--controller", "yesno", "--prompt", "x")


def test_recording_an_engine_in_another_process_is_refused(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    assert "set VLLM_ENABLE_V1_MULTIPROCESSING to 0" in refused(*YESNO, "--record", "r.json")
