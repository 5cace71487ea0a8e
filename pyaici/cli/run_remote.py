"""`aici run --server`: generates text at a server, under a controller's control."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError
from pyaici.bundled import find_controller, language_of
from pyaici.cli.remote import open_server
from pyaici.engines.options import HINT, fill_in, given_argument, read_request
from pyaici.scripting.script import InterpreterMissingError

if TYPE_CHECKING:
    from pyaici.engines.rest_events import RestEvents
    from pyaici.engines.terminal import Terminal
    from pyaici.rest import RestClient

#: options for a local model, and their defaults
LOCAL = {"model": None, "device": None, "socket": None, "beams": 1, "record": None}

Stream = Generator[dict[str, Any], None, None]


def local_options(arguments: argparse.Namespace) -> list[str]:
    """Returns the options for a local model that the user has given."""
    return [f"--{name}" for name, default in LOCAL.items() if getattr(arguments, name) != default]


def run(arguments: argparse.Namespace, url: str) -> int:
    """Generates at the server; returns 1 if a fork ended with an error.

    Raises AiciError or ValueError for invalid arguments. On KeyboardInterrupt, shows the summary so far and
    closes the stream, which ends the run at the server, before the exception propagates.
    """
    if given := local_options(arguments):
        raise AiciError(f"{', '.join(given)}: not with --server, which has its own model and way to run it")
    fill_in(arguments)
    request = read_request(arguments)
    body: dict[str, Any] = {
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "top_k": request.sampling.top_k,
        "max_tokens": request.max_tokens,
    }
    if request.n > 1:
        body["n"] = request.n
    if request.sampling.seed is not None:
        body["seed"] = request.sampling.seed
    if (argument := given_argument(arguments, request)) is not None:
        body["controller_arg"] = argument
    with open_server(url, arguments, "rich") as client:
        body["controller"] = _controller(client, arguments.controller)
        try:
            stream = _start(client, body, str(request.prompt), arguments.chat)
        except AiciError as error:
            raise _explained(error, arguments.controller, url) from None
        with contextlib.closing(stream):
            return _show(stream)


def _controller(client: RestClient, name: str) -> str:
    """Returns the server's name of the controller, after uploading it if it is a Wasm file.

    A script is sent in the argument of the controller that runs it; other names must be known to the
    server.
    """
    from pyaici.rest import ServerError

    if (language := language_of(name)) is not None:
        return language.controller
    if Path(name).suffix != ".wasm" and "/" not in name:
        return name
    path = find_controller(name)
    try:
        return str(client.upload(path.read_bytes())["id"])
    except OSError as error:
        raise AiciError(f"cannot read {path}: {error.strerror}") from error
    except ServerError as error:
        if error.status not in (401, 403):
            raise
        raise AiciError(
            f"{path} is a file, which must be uploaded first, and that needs a token of the role upload: "
            f"{error}"
        ) from None


def _explained(error: AiciError, controller: str, url: str) -> AiciError:
    """Replaces the error for a missing interpreter by one about scripts; returns other errors unchanged."""
    language = language_of(controller)
    if language is None or getattr(error, "reason", "") != "unknown_module":
        return error
    return InterpreterMissingError(
        f"the server at {url} cannot run scripts in {language.name}: its controller {language.controller} "
        "was not built; to mend it there: with network, python -m pyaici.build"
    )


def _start(client: RestClient, body: dict[str, Any], prompt: str, chat: bool | None) -> Stream:
    """Starts a run and returns its stream. `chat` None: as a chat if the model has a chat template."""
    from pyaici.rest import ServerError

    try:
        if chat is not False:
            try:
                return _accepted(client, {**body, "messages": [{"role": "user", "content": prompt}]})
            except ServerError as error:
                if chat or error.reason != "no_chat_template":
                    raise
        return _accepted(client, {**body, "prompt": prompt})
    except ServerError as error:
        if error.reason == "argument" and "controller_arg" not in body:
            raise AiciError(f"{error.message}; {HINT}", **error.detail) from None
        raise


def _accepted(client: RestClient, body: dict[str, Any]) -> Stream:
    """Starts a run and consumes its first event, in whose place an error of the request is raised."""
    stream = client.run(**body)
    next(stream)
    return stream


def _show(stream: Stream) -> int:
    from pyaici.engines.rest_events import RestEvents
    from pyaici.engines.terminal import Terminal

    told = RestEvents()
    terminal = Terminal()
    start = time.perf_counter()
    try:
        with terminal:
            for happened in stream:
                for event in told.take(happened):
                    terminal.show(event)
    finally:
        _summarize(terminal, told, time.perf_counter() - start)
    if told.end is None or not told.end["forks"]:
        raise AiciError("the server has given up on this run")
    return int(any(fork["error"] is not None for fork in told.end["forks"]))


def _summarize(terminal: Terminal, told: RestEvents, seconds: float) -> None:
    """Prints the summary, with the server's own time if known, else `seconds` since the run was accepted."""
    if told.end is None:
        terminal.summary(told.counts, seconds)
        return
    timing, prompt = told.end["timing"], told.end["usage"]["prompt_tokens"]
    first = timing["first_token_s"]
    more = f"prompt: {prompt} tokens" + ("" if first is None else f"; first token after {first:.2f} s")
    terminal.summary(told.counts, timing["seconds"] or seconds, more)
