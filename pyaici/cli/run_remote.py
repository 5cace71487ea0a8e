"""`aici run --server`: a model at a server writes under a controller's control."""

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

#: options that are about a model of this machine, and what they are if they are not given
LOCAL = {"model": None, "device": None, "socket": None, "beams": 1, "record": None}

Stream = Generator[dict[str, Any], None, None]


def local_options(arguments: argparse.Namespace) -> list[str]:
    """Those that the user has given."""
    return [f"--{name}" for name, default in LOCAL.items() if getattr(arguments, name) != default]


def run(arguments: argparse.Namespace, url: str) -> int:
    """Generates at the server; the exit status is 1 if a fork ended with an error.

    Raises AiciError or ValueError for what the arguments ask in vain; KeyboardInterrupt when it has shown
    what there was by then, and the server has been told to end the run.
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
    """What the server calls it: a Wasm file is uploaded, all else is a name that is known there.

    A script travels in the argument of the controller that runs it.
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
    """That a server has no interpreter is said in the words of scripts."""
    language = language_of(controller)
    if language is None or getattr(error, "reason", "") != "unknown_module":
        return error
    return InterpreterMissingError(
        f"the server at {url} cannot run scripts in {language.name}: its controller {language.controller} "
        "was not built; to mend it there: with network, python -m pyaici.build"
    )


def _start(client: RestClient, body: dict[str, Any], prompt: str, chat: bool | None) -> Stream:
    """The stream of a run that has been accepted. `chat` None: if the model has a template for chats."""
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
    """Waits for the first event: what is wrong with a request is told in its place."""
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
    """`seconds`: since the run was accepted. The server's own time counts, once it has told it."""
    if told.end is None:
        terminal.summary(told.counts, seconds)
        return
    timing, prompt = told.end["timing"], told.end["usage"]["prompt_tokens"]
    first = timing["first_token_s"]
    more = f"prompt: {prompt} tokens" + ("" if first is None else f"; first token after {first:.2f} s")
    terminal.summary(told.counts, timing["seconds"] or seconds, more)
