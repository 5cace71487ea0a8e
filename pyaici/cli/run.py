"""`aici run`: generates text under a controller's control, with a local model or at a server."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import AiciError, OwnerLimitError
from aicirt.system.terminal import refuse_rest, show_json
from pyaici.cli.artifacts import controller_here
from pyaici.cli.command import add_command
from pyaici.cli.server import (
    add_server,
    controller_at,
    local_options,
    open_server,
    refuse_local,
    server_of,
    start_run,
)
from pyaici.engines.hf import program as hf
from pyaici.engines.llama import program as llama
from pyaici.engines.options import (
    CONTROLLER_HELP,
    MODEL,
    PLACE,
    add_beams_option,
    add_prompt_options,
    add_record_option,
    add_sampling_options,
    add_second_option,
    add_trust_option,
    engine_of,
    fill_in,
    given_argument,
    option_group,
    read_request,
    refuse_options_of_others,
    send_lines,
)
from pyaici.engines.vllm import program as vllm

if TYPE_CHECKING:
    from pyaici.cli.server import Stream
    from pyaici.engines.rest_events import RestEvents
    from pyaici.engines.terminal import Terminal
    from pyaici.rest import RestClient

_ENGINES = {"llama": llama.run_controller, "hf": hf.run_controller, "vllm": vllm.run_controller}

_MORE = """
Loads a model (default: SmolLM2-135M-Instruct, which is fetched once), and starts a daemon or connects to
the one at $AICI_SOCKET. Shows the text as it grows: sampled, forced and removed tokens, forks side by side,
and the output of the controller.

A GGUF file runs on llama.cpp (extra llama of the package; in a checkout ./scripts/run.sh installs it), the
folder or the Hub name of a Transformers model on Transformers (extra hf; ./scripts/hf.sh), and with
--engine vllm on vLLM (extra vllm; ./scripts/vllm.sh).

A controller is a script in Python or JavaScript, which needs no compiler (aici new --python NAME), or a
WebAssembly module (aici new NAME), or one that aici upload has put into the daemon or the store, by its tag
or id. docs/guide is the manual. A script gets --arg as its `arg`.

With --server, the model of an aici serve is used, and nothing is loaded on this machine. The controller is
then a script, a name that the server knows (bundled, a tag or an id), or a .wasm file, which is uploaded
first. Needs the extra client.
"""
_EXAMPLES = """\
  aici run my_script.py "Tell me a story"
  aici run my_script.js --arg '{"words": 3}' --prompt "Tell me a story"
  aici run my_ctrl.wasm --prompt "Tell me a story"
  aici run regex --arg "[A-Z][a-z]+ is [0-9]+ years old" --prompt "Who are you?"
  aici run yesno --prompt "Is the sky blue?" --model ~/models/my-model
  aici run my_ctrl.wasm --prompt @question.txt --n 3 --temperature 0.8 --seed 1
  aici run yesno --prompt "Is the sky blue?" --server http://127.0.0.1:8000
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "generate text under a controller's control"
    parser = add_command(commands, "run", run, summary, more=_MORE, examples=_EXAMPLES)
    parser.add_argument("controller", metavar="CONTROLLER", help=f"{CONTROLLER_HELP} (aici list), or none")
    parser.add_argument("text", nargs="?", metavar="PROMPT", help="the prompt, as with --prompt")
    parser.set_defaults(takes_rest=True)  # argparse does not find a prompt that comes after options
    add_prompt_options(
        parser, "GGUF file, or folder of a Transformers model, or its name on the Hugging Face Hub"
    )
    option_group(parser, MODEL).add_argument(
        "--engine",
        choices=tuple(_ENGINES),
        help="llama = llama.cpp, hf = Transformers, vllm = vLLM (default: hf for the folder of a model, else "
        "llama)",
    )
    llama.add_engine_options(parser)
    hf.add_engine_options(parser)
    add_trust_option(parser)
    add_second_option(parser)
    add_beams_option(parser)
    add_record_option(parser)
    add_sampling_options(parser)
    place = option_group(parser, PLACE)
    add_server(place, place, ", unless options for a local model are given")


def run(arguments: argparse.Namespace) -> int:
    """Generates text; returns 1 if a sequence ended with an error."""
    _place_prompt(arguments)
    arguments.controller = controller_here(arguments.controller)
    url = server_of(arguments, elsewhere=bool(local_options(arguments)))
    try:
        return _run_here(arguments) if url is None else _run_at(url, arguments)
    except (ValueError, OSError) as error:
        raise AiciError(str(error)) from error


def _place_prompt(arguments: argparse.Namespace) -> None:
    """Takes the prompt from its place. Ends the program as argparse does for anything that has no meaning."""
    given = [text for text in (*arguments.rest, arguments.text) if text is not None]
    if len(given) == 1 and arguments.prompt is None and not given[0].startswith("--"):
        arguments.prompt = given[0]
    elif given:
        refuse_rest(arguments.parser, given)


def _run_here(arguments: argparse.Namespace) -> int:
    """Generates with a model of this process. Raises ValueError for options that the engine does not have."""
    engine = arguments.engine or engine_of(arguments.model)
    refuse_options_of_others(engine, local_options(arguments))
    return _ENGINES[engine](arguments)


# -- at a server ---------------------------------------------------------------------------------------------


def _run_at(url: str, arguments: argparse.Namespace) -> int:
    """Generates at the server; returns 1 if a fork ended with an error.

    Raises AiciError or ValueError for invalid arguments. On KeyboardInterrupt, shows the summary so far and
    closes the stream, which ends the run at the server, before the exception propagates.
    """
    refuse_local(arguments)
    fill_in(arguments)
    request = read_request(arguments)
    request = replace(request, arg=given_argument(arguments, request) or b"")
    with open_server(url, arguments, "rich") as client:
        named = replace(request, controller=controller_at(client, arguments.controller))
        with contextlib.closing(start_run(client, named, arguments.chat)) as stream:
            if request.name:
                send_lines(partial(_send_line, client, request.name))
            return _print_json(stream) if arguments.json else _show(stream)


def _send_line(client: RestClient, run: str, message: Any) -> None:
    """Sends a message. Raises OwnerLimitError if too many wait, and AiciError if the run has ended."""
    from pyaici.rest import ServerError

    try:
        client.send_message(run, message)
    except ServerError as error:
        raise (OwnerLimitError if error.status == 429 else AiciError)(error.message) from None


def _print_json(stream: Stream) -> int:
    """Prints the end of the run as one object; returns 1 if a fork ended with an error."""
    end = None
    for item in stream:
        end = item if item["object"] == "run.end" else None
    show_json({**_end_of(end), "object": "run.result"})
    return int(any(fork["error"] is not None for fork in _end_of(end)["forks"]))


def _end_of(end: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns the end of a run. Raises AiciError if the stream had none."""
    if end is None or not end["forks"]:
        raise AiciError("the server ended the stream before the run was finished")
    return end


def _show(stream: Stream) -> int:
    from pyaici.engines.rest_events import RestEvents
    from pyaici.engines.terminal import Terminal

    events = RestEvents()
    terminal = Terminal()
    start = time.perf_counter()
    try:
        with terminal:
            for happened in stream:
                for event in events.convert_item(happened):
                    terminal.show(event)
    finally:
        _summarize(terminal, events, time.perf_counter() - start)
    return int(any(fork["error"] is not None for fork in _end_of(events.end)["forks"]))


def _summarize(terminal: Terminal, events: RestEvents, seconds: float) -> None:
    """Prints the summary, with the server's own time if known, else `seconds` since the run was accepted."""
    if events.end is None:
        terminal.summary(events.counts, seconds)
        return
    timing, prompt = events.end["timing"], events.end["usage"]["prompt_tokens"]
    first = timing["first_token_s"]
    more = f"prompt: {prompt} tokens" + ("" if first is None else f"; first token after {first:.2f} s")
    terminal.summary(events.counts, timing["seconds"] or seconds, more)
