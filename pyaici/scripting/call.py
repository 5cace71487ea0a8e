"""Controllers as tests call them: scripts in the same place as modules, each with its kind of argument."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pyaici.bundled import find_controller, language_of
from pyaici.scripting.script import Script, interpreter_file, read_script


def find_call(controller: str | Path, arg: Any) -> tuple[Path, str | bytes]:
    """The Wasm file that runs, and its argument.

    `controller`: a script, a Wasm file, or the name of a bundled controller. `arg`: of a script, any value of
    JSON, where b"" is none; of others, a text or bytes. Raises ScriptFileError, InterpreterMissingError,
    UnknownModuleError, and ValueError or TypeError for an `arg` of another kind.
    """
    if language_of(controller) is None:
        if not isinstance(arg, (str, bytes)):
            raise TypeError(
                f"the argument of {controller} is a text, not {type(arg).__name__}: scripts get values"
            )
        return find_controller(controller), arg
    script = read_script(controller)
    return interpreter_file(script.language), script.argument(None if arg == b"" else arg)


def recorded_call(controller: str | Path, arg: bytes) -> tuple[Path, str | bytes]:
    """The same for an argument that has been recorded: a script gets the value that it got then.

    The script itself is the one that is there now; messages call it as they did.
    """
    if language_of(controller) is None:
        return find_controller(controller), arg
    script = read_script(controller)
    told: Any = {}
    if arg.lstrip().startswith(b"{"):
        told = json.loads(arg)
    named = Script(str(told.get("name", script.name)), script.language, script.source)
    return interpreter_file(script.language), named.argument(told.get("arg"))
