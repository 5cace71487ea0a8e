"""The command `aici`: one module per subcommand, with `add` (its arguments) and `run` (its work)."""

from __future__ import annotations

import importlib
import os
import signal
from typing import NoReturn

from aicirt.system.terminal import exit_process


def script() -> NoReturn:
    """Runs the program `aici` and exits; or completes a line for a shell, by the package argcomplete."""
    # Until `main` handles Ctrl-C: the imports can take a second, and would end in a traceback. A background
    # job ignores it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    program = importlib.import_module("pyaici.cli.__main__")
    if "_ARGCOMPLETE" in os.environ:
        importlib.import_module("argcomplete").autocomplete(program.parser(completing=True))
    exit_process(program.main())
