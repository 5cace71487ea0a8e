"""`python -m aicirt.worker`: started by the supervisor, never by hand."""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import signal
import socket
import sys

from aicirt.config import WorkerConfig
from aicirt.ipc.doorbell import Doorbell
from aicirt.ipc.frames import FrameSocket
from aicirt.wasm.engine import Engine
from aicirt.wasm.host import Linker
from aicirt.wasm.imports import host_functions
from aicirt.wasm.ticker import Ticker
from aicirt.worker.hostapi import CALLS, TIMED
from aicirt.worker.loop import Worker

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38


def _confine(parent: int) -> None:
    """Dies with the supervisor and gains no privileges."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() != parent:  # it died before the signal was set
        raise SystemExit(1)


def _hide() -> None:
    """Other processes of this user cannot look into this one; /proc/self is closed to itself too,
    so the engine opens what it needs of it before."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def main(argv: list[str] | None = None) -> int:
    """Serves until told to stop."""
    parser = argparse.ArgumentParser(prog="aicirt.worker")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--bell", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--parent", type=int, required=True)
    args = parser.parse_args(argv)
    _confine(args.parent)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the supervisor decides
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    config = WorkerConfig.from_json(args.config)
    control = FrameSocket(socket.socket(fileno=args.control_fd))
    bell = Doorbell.open(args.bell)
    engine = Engine(config.limits)
    linker = Linker(engine, host_functions(CALLS, TIMED))
    _hide()
    ticker = Ticker(engine)
    worker = Worker(control, bell, engine, linker, ticker, config.request, config.worker)
    worker.run()
    ticker.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
