"""Scripts in requests: what is sent instead of the name of a controller."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from aicirt.contract.modules import MAX_NAME, NAME_PATTERN
from pyaici.scripting.errors import InterpreterMissingError
from pyaici.scripting.request import requested_script
from pyaici.scripting.script import Script, interpreter_file
from pyaici.server.errors import bad_request
from pyaici.server.fields import MAX_ARG, StrictBody, check_text
from pyaici.server.service import ControllerCall

ARG_WITHOUT_CONTROLLER = "controller_arg is a controller's argument; what a script gets is script.arg"


class ScriptText(StrictBody):
    """A controller that is written in a request."""

    language: Literal["python", "javascript"]
    source: Annotated[str, Field(min_length=1, max_length=MAX_ARG)] = Field(description="its text")
    name: Annotated[str, Field(max_length=MAX_NAME, pattern=NAME_PATTERN)] | None = Field(
        None, description="what messages about it call it; default: script.py or script.js"
    )


class ScriptBody(ScriptText):
    """One that runs at once."""

    arg: Any = Field(None, description="what the script gets as its argument, any JSON")


def read_script(body: ScriptText, where: str = "") -> Script:
    """The script, whose text can be sent on. `where`: of the body in the request, with a dot at its end.

    Raises ApiError, also where the interpreter was not built.
    """
    script = requested_script(body.language, body.source, body.name)
    check_text(body.source, f"{where}source")
    check_text(script.name, f"{where}name")
    try:
        interpreter_file(script.language)
    except InterpreterMissingError as error:
        raise bad_request(error.message, f"{where}language", "interpreter_missing") from None
    return script


def script_call(body: ScriptBody) -> ControllerCall:
    """The controller that runs it. Raises ApiError, also where the interpreter was not built."""
    script = read_script(body, "script.")
    try:
        arg = json.dumps(body.arg, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise bad_request("NaN and Infinity are no values of JSON", "script.arg") from None
    if len(arg) > MAX_ARG:
        raise bad_request(f"it has {len(arg)} characters; {MAX_ARG} are allowed", "script.arg")
    check_text(arg, "script.arg")
    return ControllerCall(script.language.controller, script.argument(body.arg), "script", "script.source")
