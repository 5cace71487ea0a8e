"""Runs `aici serve`: settings, aicirt, the model, then HTTP until a signal."""

from __future__ import annotations

import argparse
import contextlib
import gc
import logging
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal

import prometheus_client

from aicirt.contract.errors import AiciError
from aicirt.system import logs
from aicirt.system.terminal import BriefParser, parse_arguments
from pyaici.bundled import DESCRIPTIONS, bundled_controllers
from pyaici.client.control import Daemon
from pyaici.client.runtime import Runtime, rows_for
from pyaici.server import models
from pyaici.server.app import create_app
from pyaici.server.controller_store import ControllerStore
from pyaici.server.http.listening import HttpServer, bind
from pyaici.server.http.tracing import exporting
from pyaici.server.settings import PREFIX, ServerSettings, read_settings
from pyaici.server.shared_controllers import SharedControllers
from pyaici.server.shared_store import SharedStore
from pyaici.toolchain.sdk import source_tree
from pyaici.tools.process import ToolsProcess

_log = logging.getLogger("aicirt.server")
_DESCRIPTION = """\
Serves a model over HTTP: runs controllers and reports everything that they do, and offers the APIs of OpenAI
and ai00, and character-prefix completion. GET /openapi.json describes all routes.
"""
_EPILOG = f"""\
Every option can also be set in a TOML file (--config), e.g. port = 9000, or in the environment:
--max-streams is {PREFIX}MAX_STREAMS, and lists are JSON there. Options override the environment, which
overrides the file.

examples:
  aici serve                                           SmolLM2-135M-Instruct at http://127.0.0.1:8000
  aici serve --model ~/models/my-model --port 9000
  aici serve --engine vllm --model ~/models/my-model
  aici users add ada --role upload --file users.json   prints ada's token, once
  aici serve --users users.json --host 0.0.0.0
"""

#: The interpreter's switch interval, which bounds how long another thread delays the engine. The engine
#: releases the interpreter at each operation of the model.
_SWITCH_SECONDS = 0.00005


def parser() -> argparse.ArgumentParser:
    """Returns a parser with an option for each setting."""
    whole = BriefParser(
        prog="aici serve",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    whole.add_argument("--config", type=Path, metavar="FILE", help="a TOML file of settings")
    for name, field in ServerSettings.model_fields.items():
        option = f"--{name.replace('_', '-')}"
        default = "" if field.default in (None, [], False) else f" (default: {field.default})"
        text = f"{field.description}{default}".replace("%", "%%")
        kind = _kind(field.annotation)
        if kind is bool:
            whole.add_argument(option, dest=name, action=argparse.BooleanOptionalAction, help=text)
        elif typing.get_origin(kind) is Literal:
            whole.add_argument(option, dest=name, choices=typing.get_args(kind), help=text)
        elif typing.get_origin(kind) is list:
            whole.add_argument(option, dest=name, nargs="+", action="extend", metavar="TEXT", help=text)
        else:
            metavar = {int: "N", float: "SECONDS", Path: "PATH"}.get(kind, "TEXT")
            whole.add_argument(option, dest=name, metavar=metavar, help=text)
    return whole


def _kind(annotation: Any) -> Any:
    """Returns the type of an option, without the None of an optional one."""
    if isinstance(annotation, UnionType) or typing.get_origin(annotation) is typing.Union:
        (annotation,) = (kind for kind in typing.get_args(annotation) if kind is not type(None))
    return annotation


def main(argv: list[str]) -> int:
    """Runs the program and returns the exit status. Raises AiciError for invalid settings."""
    given = vars(parse_arguments(parser(), argv))
    config = given.pop("config", None)
    settings = read_settings(given, config)
    try:
        serve(settings)
    except (OSError, ValueError) as error:
        raise AiciError(str(error)) from error
    return 0


def configure_log(settings: ServerSettings) -> None:
    """Configures the log by the settings.

    Other packages never log below `info`: their debug lines contain texts of users.
    """
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    logs.configure(settings.log_format, max(level, logging.INFO))
    logging.getLogger("aicirt").setLevel(level)
    logging.getLogger("gguf").setLevel(logging.WARNING)  # it logs the temporary files of a conversion
    logging.getLogger("uvicorn.error").addFilter(_as_uvicorn)


def _as_uvicorn(record: logging.LogRecord) -> bool:
    """Renames uvicorn's logger: it is called `uvicorn.error`, but most of its lines are not errors."""
    record.name = "uvicorn"
    return True


@contextlib.contextmanager
def building() -> Iterator[Callable[[], bool]]:
    """Builds the bundled controllers that a source tree lacks in the background, and says so.

    Yields a function that returns whether the build is still running.
    """
    missing = DESCRIPTIONS.keys() - bundled_controllers().keys()
    if source_tree() is None or not missing:
        yield lambda: False
        return
    print(
        f"building {len(missing)} bundled controllers beside the server, once; until one is built, requests "
        "for it get status 503",
        file=sys.stderr,
        flush=True,
    )
    command = [sys.executable, "-m", "pyaici.toolchain", "--quiet"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=quiet, stdout=quiet, start_new_session=True) as build:
        try:
            yield lambda: build.poll() is None
        finally:
            if build.poll() is None:  # else its number may be that of another group by now
                os.killpg(build.pid, signal.SIGTERM)  # with its compiler


def other_people(accounts: Sequence[pwd.struct_passwd] | None = None) -> int:
    """Returns how many other people have accounts on this machine, and so reach its own addresses.

    People have user numbers from 1000 on, and a shell.
    """
    found = pwd.getpwall() if accounts is None else accounts
    return sum(
        1000 <= one.pw_uid < 60_000
        and one.pw_uid != os.getuid()
        and not one.pw_shell.endswith(("nologin", "false"))
        for one in found
    )


def _controllers(
    runtime: Runtime, settings: ServerSettings, is_building: Callable[[], bool]
) -> ControllerStore:
    """Returns the server's controllers: its own, or those that it shares with other replicas."""
    if settings.shared_store is None:
        return ControllerStore(runtime, settings, is_building)
    shared = SharedStore(settings.shared_store, settings.max_upload_bytes)
    return SharedControllers(runtime, settings, shared, is_building)


def serve(settings: ServerSettings) -> None:
    """Serves until SIGINT or SIGTERM. Raises AiciError, OSError or ValueError if it cannot start."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the creation times of counters are not used
    configure_log(settings)
    start = time.perf_counter()
    if settings.users is not None and not settings.users.exists():
        raise AiciError(
            f"there is no file {settings.users}: `aici users add NAME --file {settings.users}` creates it"
        )
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(bind(settings))
        stack.enter_context(exporting(settings.otel))
        if settings.users is None and (others := other_people()):
            print(
                f"other people with accounts on this machine ({others}) can use the server: --users FILE "
                "asks for tokens",
                file=sys.stderr,
                flush=True,
            )
        is_building = stack.enter_context(building())
        print(f"loading {settings.model or 'the default model'} ...", file=sys.stderr, flush=True)
        socket = settings.socket
        if socket is None:
            options = ["--isolate-owners"] if settings.isolate_owners else []
            daemon = Daemon(workers=settings.workers, store=settings.store, options=options)
            stack.callback(daemon.close)
            socket = daemon.socket_path
        tools = stack.enter_context(ToolsProcess(socket, settings.tools)) if settings.tools.wanted else None
        # requests such as uploads arrive while the engine is in a step: each side has its own connection
        engine_runtime = stack.enter_context(Runtime(socket, num_rows=rows_for(settings.max_streams)))
        control_runtime = stack.enter_context(Runtime(socket))
        model = models.load(settings, engine_runtime, socket)
        control_runtime.register(model.vocabulary)
        failed = threading.Event()

        def end() -> None:
            failed.set()
            server.should_exit = True

        store = _controllers(control_runtime, settings, is_building)
        app = create_app(settings, model, store, end, tools)
        server = HttpServer(app, settings)
        gc.collect()
        gc.freeze()  # a full collection would scan everything imported and loaded, while all threads wait
        print(f"{model.name} is loaded ({time.perf_counter() - start:.1f} s)", file=sys.stderr, flush=True)
        if tools is not None:
            tools.wait_until_ready()
        server.run(sockets=[listening])
        if failed.is_set():
            raise AiciError("the server has stopped because the engine failed: see the log")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
