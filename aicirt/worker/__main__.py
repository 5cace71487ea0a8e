"""`python -m aicirt.worker`: started by the supervisor, never by hand."""

from __future__ import annotations

import argparse
import logging
import socket
import sys
from pathlib import Path

from aicirt.config import WorkerConfig
from aicirt.ipc.doorbell import Doorbell
from aicirt.ipc.frames import FrameSocket
from aicirt.wasm.engine import Engine
from aicirt.wasm.host import Linker
from aicirt.wasm.imports import host_functions
from aicirt.wasm.ticker import Ticker
from aicirt.worker import confine
from aicirt.worker.hostapi import CALLS, TIMED
from aicirt.worker.loop import Worker


def main(argv: list[str] | None = None) -> int:
    """Serves until told to stop."""
    parser = argparse.ArgumentParser(prog="aicirt.worker")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--bell", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--parent", type=int, required=True)
    args = parser.parse_args(argv)
    confine.bind_to(args.parent)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    config = WorkerConfig.from_json(args.config)
    control = FrameSocket(socket.socket(fileno=args.control_fd))
    bell = Doorbell.open(args.bell)
    engine = Engine(config.limits)
    linker = Linker(engine, host_functions(CALLS, TIMED))
    landlock = confine.close_in(Path(config.code))
    confine.hide()
    ticker = Ticker(engine)
    worker = Worker(control, bell, engine, linker, ticker, config.request, config.worker)
    worker.landlock = landlock
    worker.run()
    ticker.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
