"""Scripts in requests: what is sent instead of the name of a controller."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field

from pyaici.scripting.errors import InterpreterMissingError
from pyaici.scripting.request import MAX_NAME, NAME_PATTERN, requested_script
from pyaici.scripting.script import interpreter_file
from pyaici.server.errors import bad_request
from pyaici.server.fields import MAX_ARG, StrictBody, check_text
from pyaici.server.service import ControllerCall

ARG_WITHOUT_CONTROLLER = "controller_arg is a controller's argument; what a script gets is script.arg"


class ScriptBody(StrictBody):
    """A controller that is written in the request."""

    language: Literal["python", "javascript"]
    source: Annotated[str, Field(min_length=1, max_length=MAX_ARG)] = Field(description="its text")
    name: Annotated[str, Field(max_length=MAX_NAME, pattern=NAME_PATTERN)] | None = Field(
        None, description="what messages about it call it; default: script.py or script.js"
    )
    arg: Any = Field(None, description="what the script gets as its argument, any JSON")


def script_call(body: ScriptBody) -> ControllerCall:
    """The controller that runs it. Raises ApiError, also where the interpreter was not built."""
    script = requested_script(body.language, body.source, body.name)
    check_text(body.source, "script.source")
    check_text(script.name, "script.name")
    try:
        arg = json.dumps(body.arg, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise bad_request("NaN and Infinity are no values of JSON", "script.arg") from None
    if len(arg) > MAX_ARG:
        raise bad_request(f"it has {len(arg)} characters; {MAX_ARG} are allowed", "script.arg")
    check_text(arg, "script.arg")
    try:
        interpreter_file(script.language)
    except InterpreterMissingError as error:
        raise bad_request(error.message, "script.language", "interpreter_missing") from None
    return ControllerCall(script.language.controller, script.argument(body.arg), "script", "script.source")
