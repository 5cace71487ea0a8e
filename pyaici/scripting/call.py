"""Finds the module and argument that run a controller: a script, a Wasm file or a bundled one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyaici.bundled import find_controller, language_of
from pyaici.client.arguments import argument_text
from pyaici.scripting.script import Script, interpreter_file, read_script


def find_call(controller: str | Path, arg: Any) -> tuple[Path, str | bytes]:
    """Returns the Wasm file to run, and its argument.

    `controller`: a script, a Wasm file, or the name of a bundled controller. `arg`: for a script, any JSON
    value, with b"" as None; for others, text, bytes, or a dict or list for JSON. Raises ScriptFileError,
    InterpreterMissingError, UnknownControllerError, ArgumentError for an `arg` of another kind, and for
    scripts ValueError or TypeError for what is no JSON value.
    """
    if language_of(controller) is None:
        return find_controller(controller), argument_text(arg)
    script = read_script(controller)
    return interpreter_file(script.language), script.argument(None if arg == b"" else arg)


def recorded_call(controller: str | Path, arg: bytes) -> tuple[Path, str | bytes]:
    """Does the same as `find_call` for a recorded argument: a script gets the recorded value.

    The script's text is read from its file now; its name in messages is the recorded one.
    """
    if language_of(controller) is None:
        return find_controller(controller), arg
    script = read_script(controller)
    recorded: Any = {}
    if arg.lstrip().startswith(b"{"):
        recorded = json.loads(arg)
    named = Script(str(recorded.get("name", script.name)), script.language, script.source)
    return interpreter_file(script.language), named.argument(recorded.get("arg"))
