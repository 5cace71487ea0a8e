"""How commands end: exit statuses, error messages, signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from aicirt.contract.errors import AiciError, ArgumentError
from aicirt.system.terminal import run_command
from lab.system.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[3]
SIGNALS = [(signal.SIGINT, 130, "it: interrupted\n"), (signal.SIGTERM, 143, "it: ended by SIGTERM\n")]


@pytest.fixture
def start() -> Callable[..., subprocess.Popen[str]]:
    """Returns a function that starts a program, which runs `work` as a command and prints `ready`."""

    def start(work: str, *, ignores: bool = False) -> subprocess.Popen[str]:
        code = (
            "import time, sys, atexit\n"
            "from aicirt.system.terminal import exceptions_wait, exit_process, run_command\n"
            f"def ready(): print('ready', flush=True)\ndef work():\n{work}\n"
            "atexit.register(print, 'exit handlers ran')\n"
            "status = run_command('it', work)\nprint('status', status)\nexit_process(status)\n"
        )
        shell = 'trap "" INT; exec "$@"' if ignores else 'exec "$@"'
        process = subprocess.Popen(
            ["bash", "-c", shell, "-", sys.executable, "-c", code],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return process

    return start


def output_until_exit(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Returns what the process prints to stdout and to stderr until its end.

    Unlike `communicate`, it includes what `start` has read ahead.
    """
    assert process.stdout is not None and process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    process.wait(PATIENCE)
    return out, err


def test_exit_statuses_and_messages_of_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command("it", lambda: 0) == 0
    assert run_command("it", lambda: 3) == 3
    assert capsys.readouterr().err == ""

    def fail() -> int:
        raise AiciError("no luck")

    assert run_command("it", fail) == 1
    assert capsys.readouterr().err == "it: error: no luck\n"

    def refuse() -> int:
        raise ArgumentError("no number", log="".join(f"line {i}\n" for i in range(30)))

    assert run_command("it", refuse) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines == [*(f"  | line {i}" for i in range(10, 30)), "it: error: no number"]

    def break_down() -> int:
        raise ValueError("a defect")

    with pytest.raises(ValueError, match="a defect"):
        run_command("it", break_down)
    assert run_command("it", break_down, (ValueError,)) == 1


def test_signal_handlers_are_restored() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    during: list[object] = []
    run_command("it", lambda: during.extend(map(signal.getsignal, numbers)) or 0)
    assert [signal.getsignal(number) for number in numbers] == before
    assert during[:2] != before[:2]


def test_existing_timer_continues() -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    old = signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        run_command("it", lambda: 0)
        assert 900 < signal.getitimer(signal.ITIMER_REAL)[0] <= 1000
    finally:
        signal.setitimer(signal.ITIMER_REAL, *old)
        signal.signal(signal.SIGALRM, before)


def test_commands_run_in_threads_that_cannot_handle_signals() -> None:
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(run_command("it", lambda: 7)))
    thread.start()
    thread.join()
    assert statuses == [7]


@pytest.mark.parametrize(("number", "status", "line"), SIGNALS)
def test_signal_ends_a_command_after_cleanup(
    start: Callable[..., subprocess.Popen[str]], number: signal.Signals, status: int, line: str
) -> None:
    with start(
        # one long sleep would not notice a signal that comes just before it
        "    try:\n        ready()\n        for _ in range(1000):\n            time.sleep(0.1)\n"
        "    finally:\n        print('tidied up')"
    ) as process:
        process.send_signal(number)
        out, err = output_until_exit(process)
    assert (process.returncode, err) == (status, line)
    # exit handlers do not run, but all output is flushed
    assert out == f"tidied up\nstatus {status}\n"


@pytest.mark.parametrize(("number", "status", "line"), SIGNALS)
def test_signal_whose_exception_is_swallowed_ends_the_command_too(
    start: Callable[..., subprocess.Popen[str]], number: signal.Signals, status: int, line: str
) -> None:
    """KeyboardInterrupt is lost if it is raised in a callback, or in code that catches everything."""
    with start(
        "    ready()\n    while True:\n"
        "        try:\n            time.sleep(0.1)\n        except BaseException:\n            pass"
    ) as process:
        process.send_signal(number)
        _, err = output_until_exit(process)
    assert (process.returncode, err) == (status, line)


@pytest.mark.parametrize(("number", "status", "line"), SIGNALS)
@pytest.mark.parametrize("error", ["RuntimeError", "AiciError"])
def test_signal_whose_exception_is_translated_is_still_the_reason(
    start: Callable[..., subprocess.Popen[str]], number: signal.Signals, status: int, line: str, error: str
) -> None:
    """Python 3.11 does that where it calls `__set_name__`, and so do libraries in C that import something."""
    with start(
        "    from aicirt.contract.errors import AiciError\n    ready()\n"
        "    try:\n        while True:\n            time.sleep(0.1)\n"
        f"    except BaseException:\n        raise {error}('no import')"
    ) as process:
        process.send_signal(number)
        _, err = output_until_exit(process)
    assert (process.returncode, err) == (status, line)


def test_ignored_interrupt_stays_ignored(start: Callable[..., subprocess.Popen[str]]) -> None:
    """Shells start background jobs with SIGINT ignored."""
    with start("    ready()\n    time.sleep(1)\n    return 5", ignores=True) as process:
        process.send_signal(signal.SIGINT)
        output_until_exit(process)
    assert process.returncode == 5


def test_without_a_signal_exit_handlers_run(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    with start("    ready()\n    return 0") as process:
        out, _ = output_until_exit(process)
    assert (process.returncode, out) == (0, "status 0\nexit handlers ran\n")


@pytest.mark.parametrize(("number", "status", "line"), SIGNALS)
def test_exceptions_of_signals_wait(
    start: Callable[..., subprocess.Popen[str]], number: signal.Signals, status: int, line: str
) -> None:
    """While torch is imported, some of its calls of Python abort the process after an exception."""
    work = (
        "    with exceptions_wait():\n        ready()\n        sys.stdin.readline()\n"
        "        print('imported')\n    print('never')"
    )
    with start(work) as process:
        process.send_signal(number)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        out, err = output_until_exit(process)
    assert (process.returncode, err) == (status, line)
    assert out == f"imported\nstatus {status}\n"


def test_waiting_exceptions_have_the_same_grace_period(start: Callable[..., subprocess.Popen[str]]) -> None:
    with start("    with exceptions_wait():\n        ready()\n        time.sleep(1000)") as process:
        process.send_signal(signal.SIGINT)
        _, err = output_until_exit(process)
    assert (process.returncode, err) == (130, "it: interrupted\n")
