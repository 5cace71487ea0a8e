"""`aici run`: generates text under a controller's control."""

from __future__ import annotations

import argparse
from typing import Any

from aicirt.contract.errors import AiciError
from pyaici.cli import run_remote
from pyaici.cli.command import add_command
from pyaici.cli.remote import add_server, server_of
from pyaici.engines.hf.program import add_options
from pyaici.engines.hf.program import run as run_program
from pyaici.engines.options import CONTROLLER_HELP

_MORE = """
Loads a Transformers model (default: SmolLM2-135M-Instruct, which is fetched once), starts aicirt or joins the
one of $AICI_SOCKET, and shows the text as it grows: what the model chose, what the controller forced or took
back, forks side by side, and what the controller prints. Needs the extra hf: pip install 'aici[hf]'

A controller is a program in Python or JavaScript, which needs no compiler (aici new --python NAME makes one,
docs/scripting.md is the manual), or WebAssembly (aici new NAME). What --arg gives is the script's `argument`:
a value of JSON if it is one, else a text.

With --server the model is the one of an aici serve, and nothing is loaded here: the controller is a script,
one that the server knows by this name (bundled, a tag, or an id), or a .wasm file, which is uploaded first.
Needs the extra client: pip install 'aici[client]'
"""
_EXAMPLES = """\
  aici run my_script.py --prompt "Tell me a story"
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
    parser.add_argument(
        "controller",
        metavar="CONTROLLER",
        help=f"{CONTROLLER_HELP} (aici list), or none",
    )
    add_options(parser)
    add_server(parser, parser, ", unless options say how to run a model here")


def run(arguments: argparse.Namespace) -> int:
    """Generates text; returns 1 if a sequence ended with an error."""
    url = server_of(arguments, elsewhere=bool(run_remote.local_options(arguments)))
    try:
        return run_program(arguments) if url is None else run_remote.run(arguments, url)
    except (ValueError, OSError) as error:
        raise AiciError(str(error)) from error
