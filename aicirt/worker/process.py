"""The program of a worker process, which the fork server runs."""

from __future__ import annotations

import argparse
import logging
import os
import socket
from collections.abc import Callable

from aicirt import sandbox
from aicirt.contract.errors import AiciError
from aicirt.ipc.frames import FrameSocket
from aicirt.ipc.ring import Doorbell
from aicirt.settings import WorkerConfig
from aicirt.system import logs
from aicirt.system.processes import become
from aicirt.system.resources import BACKGROUND_NICE, WORKER_NICE, give_way, take_short_turns
from aicirt.system.shortage import describe
from aicirt.wasm.engine import WasmEngine
from aicirt.wasm.fiber import Ticker
from aicirt.wasm.host import Linker
from aicirt.wasm.imports import host_functions
from aicirt.wasm.memory import Reaper
from aicirt.worker.control import Controls
from aicirt.worker.hostapi import CALLS, TIMED
from aicirt.worker.loop import Worker
from aicirt.worker.scheduling import Listener

_log = logging.getLogger("aicirt.worker")
#: time slices: of the ticker and the listener, which run for some microseconds, and of the worker
_TICKER_TURN_SECONDS, _TURN_SECONDS = 100e-6, 1e-3


def main(argv: list[str]) -> int:
    """Serves until the supervisor stops the worker. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="aicirt.worker")
    parser.add_argument("--control-fd", type=int, required=True)
    parser.add_argument("--bell-fd", type=int, required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument(
        "--background", action="store_true", help="run at a lower priority than other workers"
    )
    parser.add_argument("--user", type=int, nargs=2, metavar=("UID", "GID"), help="run as this user")
    args = parser.parse_args(argv)
    config = WorkerConfig.from_json(args.config)
    logs.configure(config.log_format, logging.WARNING)
    try:
        if config.code:
            os.chdir(config.code)  # the worker's user may be unable to reach the folder by its path
        if args.user:
            become(*args.user)
        sandbox.die_with(args.parent)
        give_way(BACKGROUND_NICE if args.background else WORKER_NICE)
        worker, threads = _start_worker(args, config)
    except (AiciError, OSError, RuntimeError) as error:
        _log.critical("cannot start: %s", describe(error))  # safe to log: the message cannot quote a user yet
        return 1
    worker.run()
    for end in threads:
        end()
    return 0


def _start_worker(args: argparse.Namespace, config: WorkerConfig) -> tuple[Worker, list[Callable[[], None]]]:
    """Creates the worker and confines the process; returns the worker and functions that end its threads.

    Raises an error for any missing resource.
    """
    control = FrameSocket(socket.socket(fileno=args.control_fd))
    bell = Doorbell.of_file(args.bell_fd)
    os.close(args.bell_fd)
    engine = WasmEngine(config.limits)
    linker = Linker(engine, host_functions(CALLS, TIMED))
    layers = sandbox.enter(sandbox.BUILDER if args.background else sandbox.WORKER)
    engine.reaper = reaper = Reaper()
    reaper.start()
    take_short_turns(_TICKER_TURN_SECONDS)
    ticker = Ticker(engine)
    listener = Listener(bell, engine.interrupt_slice)
    listener.start()
    take_short_turns(_TURN_SECONDS)
    worker = Worker(bell, listener, control, engine, ticker, config.request, config.worker)
    worker.serve_call = Controls(worker, linker, layers.to_wire()).serve_call
    return worker, [listener.stop, reaper.stop, ticker.close]
