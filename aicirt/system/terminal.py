"""Commands on a terminal: printable text, error lines, exit statuses."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn, TextIO

from aicirt.contract.errors import AiciError

#: C0 and C1 controls, and DEL, without newline and tab. They could move the cursor, hide text, change the
#: title, or make the terminal send input
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Replaces control characters by escapes such as `\\x1b`."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def show(value: object = "", *, file: TextIO | None = None, flush: bool = False) -> None:
    """Prints a line with control characters escaped. Use this for every line that contains foreign text."""
    print(printable(str(value)), file=file, flush=flush)


def show_json(value: object, indent: int | None = 2) -> None:
    """Prints a value as JSON, with control characters escaped as JSON does."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    print(_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


#: lines of usage before an error
_USAGE_LINES = 6


def parse_arguments(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses as argparse does, and suggests options for unknown ones."""
    arguments, rest = parser.parse_known_args(argv)
    if rest:
        refuse_rest(parser, rest)
    return arguments


def refuse_rest(parser: argparse.ArgumentParser, rest: list[str]) -> NoReturn:
    """Ends the program as argparse does for unknown arguments, and suggests the ones probably meant."""
    known = [option for action in parser._actions for option in action.option_strings]
    words = [word.partition("=")[0] for word in rest if word.startswith("--")]
    meant = [found[0] for word in words if (found := difflib.get_close_matches(word, known, n=1))]
    if not words and "--prompt" in known:
        meant = ["--prompt"]
    hint = f"; did you mean {' and '.join(meant)}?" if meant else ""
    parser.error(f"unrecognized arguments: {' '.join(rest)}{hint}")


class BriefParser(argparse.ArgumentParser):
    """A parser that names its help in an error, in place of a usage of many lines."""

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        usage = self.format_usage()
        if usage.count("\n") > _USAGE_LINES:
            usage = f"usage: {self.prog} [options]; {self.prog} --help lists them\n"
        self.exit(2, f"{usage}{self.prog}: error: {message}\n")


#: time that a command has for an orderly exit after Ctrl-C or SIGTERM. An interrupt may get lost: if it
#: arrives while a library calls Python from C, it ends only that call
GRACE_SECONDS = 1.0
#: lines of a controller's output that are shown with an error
_LOG_LINES = 20


#: the signals that have come within `exceptions_wait`; None outside of it
_waiting: list[int] | None = None


@contextlib.contextmanager
def exceptions_wait() -> Iterator[None]:
    """Makes signals of `run_command` raise at its end only; the grace period begins at once.

    For the import of libraries in C++ that call Python while they are loaded: some of these calls abort the
    process if Python raises an exception.
    """
    global _waiting
    outer, _waiting = _waiting, []
    try:
        yield
    finally:
        signals, _waiting = _waiting, outer
        if signals:
            raise KeyboardInterrupt


def run_command(
    name: str, work: Callable[[], int], errors: tuple[type[Exception], ...] = (AiciError,)
) -> int:
    """Runs `work`; returns its exit status, 1 after one of `errors`, 130 after Ctrl-C, 143 after SIGTERM.

    `name` is the command in messages. If `work` does not end within `GRACE_SECONDS` of the
    signal, the process exits without further cleanup.
    """
    came: list[signal.Signals] = []
    try:
        with _signals_raise(name, came):
            return work()
    except KeyboardInterrupt:
        return ended_by(name, came[0] if came else signal.SIGINT)
    except Exception as error:
        # an interrupt may arrive as another exception: Python 3.11 makes it a RuntimeError if it comes in
        # `__set_name__`, and libraries in C an ImportError
        if came:
            return ended_by(name, came[0])
        if not isinstance(error, errors):
            raise
        _show(name, error)
        return 1


def ended_by(name: str, number: signal.Signals) -> int:
    """Prints that a signal has ended the command; returns the exit status for that signal."""
    why = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    print(f"{name}: {why}", file=sys.stderr, flush=True)
    return 128 + number


def exit_process(status: int) -> NoReturn:
    """Ends the process; after a signal at once, since finalizing an interpreter with torch takes a second."""
    if status <= 128:
        sys.exit(status)
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(status)


@contextlib.contextmanager
def _signals_raise(name: str, came: list[signal.Signals]) -> Iterator[None]:
    """Makes SIGINT and SIGTERM raise KeyboardInterrupt and start the grace period; adds them to `came`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if signal.SIGALRM not in found:  # the first signal; a later one interrupts the cleanup
            found[signal.SIGALRM] = signal.signal(signal.SIGALRM, lambda *_: exit_at_last(number))
            signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS)
        came.append(signal.Signals(number))
        if _waiting is not None:
            _waiting.append(number)
        else:
            raise KeyboardInterrupt

    def exit_at_last(number: int) -> NoReturn:
        if sys.stdout.isatty():
            os.write(1, b"\x1b[?25h")  # shows the cursor, which a live display hides
        os._exit(ended_by(name, signal.Signals(number)))

    for number, handler in list(found.items()):
        if handler is not signal.SIG_IGN:  # ignored for a shell's background jobs
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        if signal.SIGALRM in found:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in list(found.items()):
            if handler is not None:  # None: the handler was not set by Python
                signal.signal(number, handler)


def _show(name: str, error: Exception) -> None:
    """Prints the error, after the last lines of the controller's output."""
    log = str(error.detail.get("log", "")) if isinstance(error, AiciError) else ""
    for line in log.splitlines()[-_LOG_LINES:]:
        show(f"  | {line}", file=sys.stderr)
    print(describe_error(error, f"{name}: "), file=sys.stderr)


def describe_error(error: Exception | str, before: str = "") -> str:
    """Returns an error as text for people, with control characters escaped.

    The text is one line, or "error:" followed by the lines of a controller, such as a script's traceback.
    """
    text = printable(str(error))
    if "\n" not in text or not isinstance(error, (AiciError, str)):
        return f"{before}error: {text}"
    return "\n".join([f"{before}error:", *(f"  {line}" for line in text.splitlines())])
