"""`aici upload`: uploads a controller to a server, a daemon or the user's store."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from aicirt.contract.errors import AiciError
from aicirt.system.terminal import show
from pyaici.bundled import find_controller, language_of
from pyaici.cli.command import add_command
from pyaici.cli.place import add_place, open_place
from pyaici.scripting.script import Script, read_script

_MORE = """
A script becomes a controller that is used by name as others are; its argument is a value of JSON, or a text.
An engine that uses the same daemon, such as a vLLM server, then starts the controller by its id or by a tag.
Prints both. Uploading a file again changes nothing; a tag that another module has moves, which counts for
requests that begin from then on. Without a daemon it goes to the store that daemons of this user start with.
At a server (aici serve) it is yours, and needs a token of the role upload.
"""
_EXAMPLES = """\
  aici upload my_ctrl.wasm --tag my_ctrl --socket /run/aici.sock
  aici upload my_ctrl.wasm --tag my_ctrl --server http://gpu-3:8000
  aici upload my_script.py --tag my_script --server http://gpu-3:8000
  aici upload regex                                        a bundled controller; prints its id
"""


def add(commands: Any) -> None:
    """Adds the command and its arguments."""
    summary = "upload a controller for engines to use"
    parser = add_command(commands, "upload", run, summary, more=_MORE, examples=_EXAMPLES)
    parser.add_argument(
        "file",
        metavar="CONTROLLER",
        help="a .wasm file, a script in Python or JavaScript (.py, .js, .mjs), or the name of a bundled one",
    )
    parser.add_argument(
        "--tag", metavar="NAME", action="append", default=[], help="a name for it; may be given several times"
    )
    add_place(parser)


def run(arguments: argparse.Namespace) -> int:
    """Uploads and tags the controller, and prints the id of the module and its tags."""
    script = _script(arguments.file) if language_of(arguments.file) else None
    wasm = b"" if script else _module(arguments.file)
    with open_place(arguments) as place:
        module = place.upload_script(script) if script else place.upload(wasm)
        for tag in arguments.tag:
            try:
                place.tag(module.id, tag)
            except AiciError as error:
                raise AiciError(f"{arguments.file} has been uploaded as {module.id}, but: {error}") from error
    show(f"{module.id}  {', '.join(sorted({*module.tags, *arguments.tag}))}".rstrip())
    return 0


def _module(name: str) -> bytes:
    path = find_controller(name)
    try:
        return path.read_bytes()
    except OSError as error:
        raise AiciError(f"cannot read {path}: {error.strerror}") from error


def _script(name: str) -> Script:
    """Reads a script, and names it in messages by its file name without the folder."""
    return replace(read_script(name), name=Path(name).name)
