"""The command line: options, errors, and whole runs of the default model."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyaici.build import build_controller
from pyaici.engines.hf import program
from pyaici.engines.hf.request import Request
from pyaici.models import default_model_path

ROOT = Path(__file__).resolve().parents[4]
GUEST = ROOT / "tests" / "guests" / "guest.c"


def options(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--controller")
    program.add_options(parser)
    return parser.parse_args(argv)


def run(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "harness" / "run_hf.py"), *argv]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=300, check=False, **options
    )


def test_the_options_work_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from pyaici.engines.hf import program\n"
        "program.main(['--controller', 'none', '--prompt', 'x'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert 'pip install "aici[hf]"' in done.stderr


def test_a_request_from_options(tmp_path: Path) -> None:
    question = tmp_path / "question.txt"
    question.write_text("Who?\n")

    class Tokenizer:
        chat_template = "{{ messages }}"

    arguments = options(
        *("--prompt", f"@{question}", "--arg", "a+", "--n", "2", "--temperature", "0.5", "--top-p", "0.9"),
        *("--top-k", "7", "--seed", "3", "--max-tokens", "9"),
    )
    request = program.make_request(arguments, Tokenizer(), "module")
    assert request.prompt == [{"role": "user", "content": "Who?\n"}]
    assert (request.module, request.arg, request.n, request.max_tokens) == ("module", "a+", 2, 9)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (0.5, 0.9, 7, 3)
    plain = program.make_request(options("--prompt", "x", "--no-chat"), Tokenizer(), None)
    assert plain == Request("x", arg="")
    assert program.make_request(options("--prompt", "x"), object(), None) == Request("x", arg="")
    assert program.make_request(options("--prompt", "x", "--beams", "3"), object(), None).beams == 3


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--controller", "yesno"], "--prompt"),
        (["--controller", "no such thing", "--prompt", "x"], "no such thing"),
        (["--controller", "none", "--prompt", "x", "--model", "/nowhere"], "/nowhere"),
        (["--controller", "none", "--prompt", "@/no/file"], "/no/file"),
    ],
)
def test_wrong_arguments_are_explained(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        program, "load_model", program.load_model if "--model" in argv else lambda *_: (None, None)
    )
    monkeypatch.setattr("pyaici.engines.hf.engine.HfEngine", lambda *_: None)
    assert program.main(argv) == 1
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_a_controlled_run_from_end_to_end(tmp_path: Path) -> None:
    guest = build_controller(GUEST, tmp_path / "guest.wasm").path
    done = run("--controller", str(guest), "--arg", "splice 1", "--prompt", "Hi", "--max-tokens", "4")
    assert done.returncode == 0, done.stderr
    assert "#0 (ended: length)" in done.stdout
    assert "1 tokens sampled, 6 forced, 3 taken back, 0 forks" in done.stdout
    assert done.stderr == ""
    failed = run("--controller", str(guest), "--arg", "mid_trap", "--prompt", "Hi", "--no-chat")
    assert failed.returncode == 1 and "error: " in failed.stdout and "Traceback" not in failed.stderr


@pytest.mark.slow
def test_the_model_answers_without_control() -> None:
    done = run("--prompt", "What is the capital of France?", "--max-tokens", "20")
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout and "#0 (ended: eos)" in done.stdout


@pytest.mark.slow
def test_ctrl_c_shows_what_there_is_and_leaves_nothing(tmp_path: Path) -> None:
    default_model_path()
    guest = build_controller(GUEST, tmp_path / "guest.wasm").path
    before = set(Path("/dev/shm").iterdir())
    command = [sys.executable, str(ROOT / "harness" / "run_hf.py"), "--controller", str(guest)]
    command += ["--arg", "token 500", "--prompt", "Count.", "--max-tokens", "4000"]
    env = os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "TMPDIR": str(tmp_path),
        "TERM": "xterm",
    }
    screen, slave = os.openpty()
    process = subprocess.Popen(command, env=env, stdout=slave, stderr=subprocess.PIPE, text=True)
    os.close(slave)
    out = ""
    try:
        while "\x1b[32m" not in out:  # sampled text is green
            ready, _, _ = select.select([screen], [], [], 120)
            assert ready, "nothing was generated"
            out += os.read(screen, 65536).decode()
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(screen, 65536).decode():
                out += part
        assert process.wait(60) == 130
    finally:
        process.kill()
        os.close(screen)
    assert process.stderr is not None
    with process.stderr as err:
        assert err.read() == ""
    assert re.search(r"\d+ tokens sampled", out) and "(ended: cancelled)" in out
    assert not list(tmp_path.glob("aici-*")), "the runtime's folder is gone"
    assert set(Path("/dev/shm").iterdir()) <= before
