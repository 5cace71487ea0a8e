"""`python -m aicirt`: runs the daemon in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError, RuntimeFailure
from aicirt.settings import DaemonSettings, Limits, RequestLimits, WorkerConfig, WorkerSettings, describe
from aicirt.supervisor.fork_server import ForkServer
from aicirt.system import logs
from aicirt.system.files import private_directory
from aicirt.system.logs import fields
from aicirt.system.pace import pace
from aicirt.system.processes import User
from aicirt.system.resources import default_worker_count
from aicirt.system.terminal import BriefParser, ended_by, parse_arguments, run_command

_log = logging.getLogger("aicirt")
_EPILOG = """\
{limits}

Clients find the daemon by its socket: Runtime(socket=PATH), or AICI_SOCKET=PATH in the environment.
Without either, an engine starts its own runtime. Start a daemon if several engines share it, or if it must
keep running when an engine ends.

examples:
  {prog} --socket /run/user/1000/aici.sock --workers 2
  AICI_SOCKET=/run/user/1000/aici.sock aici run yesno --prompt "Is the sky blue?"
  {prog} --workers 8 --isolate-owners --worker-user aici-guests --log-format json
  {prog} --limit mid_ms=50 --limit memory_bytes=134217728 --limit max_forks=4
  AICI_LIMITS="max_forks=4 step_grace_ms=5" aici serve
"""
_LIMITS = """\
limits, their defaults, and what happens when one is exceeded. Set a limit with --limit NAME=NUMBER. A word
such as time_limit is an error code: the error ends the sequence, or the call is refused with it. Defaults
with a * are for the reference machine (five million additions in Python: 0.30 s); on a slower one they are
multiplied. Numbers that you set hold as they are.
"""
_GROUPS = {
    "per controller (times: the controller's own CPU time in each callback)": Limits,
    "per request (a sequence and its forks)": RequestLimits,
    "per worker process": WorkerSettings,
    "for the daemon, with all its clients": DaemonSettings,
}


def default_socket() -> Path:
    """Returns $AICI_SOCKET, or aicirt.sock in a private folder of $XDG_RUNTIME_DIR or of /tmp."""
    if path := os.environ.get("AICI_SOCKET"):
        return Path(path)
    if base := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(base, "aici", "aicirt.sock")
    return Path(tempfile.gettempdir(), f"aici-{os.getuid()}", "aicirt.sock")


def make_socket_folder(path: Path) -> None:
    """Makes the folder of the default socket.

    Raises RuntimeFailure if AICI_SOCKET is not set and other users could put a socket into the folder.
    """
    if os.environ.get("AICI_SOCKET"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    try:
        private_directory(path.parent)
    except (RuntimeFailure, OSError) as error:
        raise RuntimeFailure(
            f"the folder of the control socket is not private: {error}. Choose another place with "
            "--socket PATH or XDG_RUNTIME_DIR"
        ) from None


def limits_help() -> str:
    """Returns the help text on limits: the name and default of each, and what happens beyond it."""
    groups = [
        "\n".join(
            [
                f"  {title}:",
                *(f"    {name:<20} {amount:<27} {beyond}" for name, amount, beyond in describe(limits)),
            ]
        )
        for title, limits in _GROUPS.items()
    ]
    return _LIMITS + "\n".join(groups)


def _limit(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=NUMBER") from None


def make_parser(prog: str) -> argparse.ArgumentParser:
    """Returns the parser of the daemon's options. `prog`: the command in its help."""
    parser = BriefParser(
        prog=prog,
        description="Runs AICI controllers for inference engines on this machine.",
        epilog=_EPILOG.format(prog=prog, limits=limits_help()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--socket", type=Path, default=default_socket(), help="control socket (default: %(default)s)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=default_worker_count(),
        help="number of worker processes (default on this machine: %(default)s); with --isolate-owners, the "
        "maximum number of owners served at the same time",
    )
    parser.add_argument(
        "--store",
        type=Path,
        default=None,
        help="folder for uploaded modules (default: $AICI_STORE, or a folder in the user's cache)",
    )
    parser.add_argument(
        "--isolate-owners",
        action="store_true",
        help="give each owner a separate worker, so that a controller that breaks out of its sandbox finds "
        "no data of other owners there. A worker starts when its owner first needs it and ends after it has "
        "been idle (worker_idle_s). Owners beyond the number of --workers get an error until a worker is "
        "idle",
    )
    parser.add_argument(
        "--worker-user",
        metavar="NAME",
        help="compile and run controllers as this system user, who should own nothing else: a controller "
        "that breaks out of its sandbox cannot touch files and processes of aicirt's user. Start aicirt as "
        "root or with the capabilities to switch users (aici doctor checks them)",
    )
    parser.add_argument(
        "--limit",
        type=_limit,
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="set a limit; all limits are listed below. Repeat the option to set several. It overrides "
        "$AICI_LIMITS, which has NAME=NUMBER for several limits, with blanks between them",
    )
    _add_log_options(parser)
    parser.add_argument("--ready-fd", type=int, default=None, help=argparse.SUPPRESS)
    # for a daemon that belongs to one process: the daemon ends with that process and removes this folder
    parser.add_argument("--owner-pid", type=int, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, default=None, help=argparse.SUPPRESS)
    return parser


def _add_log_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="least severe messages to log (default: %(default)s)",
    )
    parser.add_argument(
        "--log-format",
        choices=logs.FORMATS,
        default=logs.FORMATS[0],
        help="text: lines for people; json: one object per line for programs, with time, level, logger, "
        "event and, if known, worker, client, owner, module and code. The log never contains prompts, "
        "outputs, arguments, variables, or what controllers print (default: %(default)s)",
    )


def _config(args: argparse.Namespace) -> WorkerConfig:
    """Returns the limits of $AICI_LIMITS and --limit. Raises ValueError for one that does not exist."""
    try:
        usual = [_limit(part) for part in os.environ.get("AICI_LIMITS", "").split()]
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"AICI_LIMITS: {error}") from None
    return WorkerConfig.with_overrides(dict([*usual, *args.limit]), pace())


def main(
    argv: list[str] | None = None,
    prog: str = "aicirt",
    add_options: Callable[[argparse.ArgumentParser], None] = lambda _: None,
    beside: Callable[[argparse.Namespace], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> int:
    """Parses the arguments and serves; returns the exit status. `prog` is the command in messages.

    `add_options` adds options of `beside`, within which the daemon runs.
    """
    parser = make_parser(prog)
    add_options(parser)
    args = parse_arguments(parser, argv)
    if args.workers < 1:
        parser.error("--workers must be at least 1")
    try:
        config = _config(args)
    except ValueError as error:
        parser.error(str(error))
    logs.configure(args.log_format, args.log_level.upper())

    def supervise() -> int:
        try:
            with contextlib.closing(ForkServer()) as fork_server, beside(args):
                number = asyncio.run(_serve(args, config, fork_server))
        except AiciError as error:
            if args.log_format == "text":
                raise
            _log.error("%s", error, extra=fields(code=error.code))
            return 1
        if number is None:
            return 0
        if args.log_format == "text":
            return ended_by(prog, number)
        _log.info("ended by %s", number.name)
        return 128 + number

    return run_command(prog, supervise)


async def _serve(
    args: argparse.Namespace, config: WorkerConfig, fork_server: ForkServer
) -> signal.Signals | None:
    """Serves until the daemon is to end; returns the signal that ended it."""
    # these imports take as long as those of the fork server, which has started meanwhile
    from aicirt.modules.store import ModuleStore
    from aicirt.supervisor.server import Supervisor

    if args.socket == default_socket():
        make_socket_folder(args.socket)
    user = User.find(args.worker_user) if args.worker_user else None
    if user is not None:
        user.require()
    store = ModuleStore(args.store, limits=config.limits, user=user)
    configured = replace(config, user=user, log_format=args.log_format)
    if config.pace > 1:
        _log.info("limits of CPU time are multiplied by %g, the pace of this machine", config.pace)
    supervisor = Supervisor(
        args.socket, store, configured, args.workers, fork_server, isolate_owners=args.isolate_owners
    )
    await supervisor.run(args.ready_fd, args.owner_pid)
    if args.folder is not None:
        shutil.rmtree(args.folder, ignore_errors=True)  # not after an error: the owner reads the log
    return supervisor.ended_by


if __name__ == "__main__":
    raise SystemExit(main())
