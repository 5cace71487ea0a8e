"""Chooses the controller that enforces the constraint of a request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyaici.server.apis.controllers import ARG_WITHOUT_CONTROLLER, script_call
from pyaici.server.apis.fields import argument_text
from pyaici.server.http.errors import bad_request
from pyaici.server.service import ControllerCall

if TYPE_CHECKING:
    from pyaici.server.apis.openai.requests import Constrained, ResponseFormat


def constraint(request: Constrained, response_format: ResponseFormat | None = None) -> ControllerCall | None:
    """Returns the controller; None for a free answer. Raises ApiError if several fields constrain it."""
    found: dict[str, ControllerCall] = {}
    if request.controller is not None:
        found["controller"] = ControllerCall(request.controller, argument_text(request.controller_arg))
    elif request.controller_arg is not None:
        words = "controller_arg needs a controller: name one, or remove controller_arg"
        raise bad_request(ARG_WITHOUT_CONTROLLER if request.script else words, "controller_arg")
    if request.script is not None:
        found["script"] = script_call(request.script)
    if request.grammar is not None:
        found["grammar"] = _call(grammar_controller(request.grammar), request.grammar, "grammar")
    if request.regex is not None:
        found["regex"] = _call("regex", request.regex, "regex")
    if request.json_schema is not None:
        found["json_schema"] = _call("json_schema", request.json_schema, "json_schema")
    if request.choice is not None:
        found["choice"] = _call("choice", request.choice, "choice")
    if response_format is not None and response_format.type == "json_object":
        found["response_format"] = _call("json_schema", {"type": "object"}, "response_format")
    elif response_format is not None and response_format.json_schema is not None:
        schema = response_format.json_schema.schema_
        found["response_format"] = _call("json_schema", schema, "response_format.json_schema.schema")
    if len(found) > 1:
        raise bad_request(f"only one of {' and '.join(found)} can constrain an answer", list(found)[1])
    return next(iter(found.values()), None)


def grammar_controller(grammar: str) -> str:
    """Returns the controller for a grammar, by the look of its syntax.

    A line with `%%` is yacc. `::=` means GBNF if there is a rule `root`, else KBNF, whose first rule is
    `start`. Everything else is Lark.
    """
    if re.search(r"^[ \t]*%%", grammar, re.MULTILINE):
        return "lr1"
    if "::=" in grammar:
        return "gbnf" if re.search(r"^[ \t]*root[ \t]*::=", grammar, re.MULTILINE) else "kbnf"
    return "lark"


def _call(controller: str, value: Any, param: str) -> ControllerCall:
    return ControllerCall(controller, argument_text(value, param), param, param)
