"""Chooses the controller that enforces the constraint of a request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pyaici.bundled import grammar_controller
from pyaici.server.answers.arguments import read_json
from pyaici.server.answers.plan import Start
from pyaici.server.apis.controllers import ARG_WITHOUT_CONTROLLER, ScriptBody, script_call
from pyaici.server.apis.fields import argument_text
from pyaici.server.apis.openai.structural_tags import StructuralTag, structural_tag_grammar
from pyaici.server.http.errors import bad_request
from pyaici.server.service import ControllerCall

if TYPE_CHECKING:
    from pyaici.server.apis.openai.requests import Constrained, ResponseFormat, VllmArguments


#: most characters of the place of a problem, which may be nested deeply
_MAX_PLACE = 200
#: how to have a grammar read otherwise, by what it is read as
_HINTS = {
    kind: f"; it was read as {name}: for another kind of grammar, send it as controller_arg, and the kind as "
    "controller (lark, gbnf, kbnf or lr1)"
    for kind, name in (("lark", "Lark"), ("gbnf", "GBNF"), ("kbnf", "KBNF"), ("lr1", "yacc"))
}
#: the schema of any JSON object
_OBJECT = {"type": "object"}


def constraint(
    request: Constrained,
    response_format: ResponseFormat | None = None,
    start: Start | None = None,
    xargs: VllmArguments | None = None,
) -> ControllerCall | None:
    """Returns the controller; None for a free answer. Raises ApiError if several fields constrain it.

    `start`: how the answer begins, for structural tags. `xargs`: the controller as AICI in vLLM takes it.
    """
    found = {} if xargs is None else _named_for_vllm(xargs)
    if request.controller is not None:
        found["controller"] = ControllerCall(request.controller, argument_text(request.controller_arg))
    elif request.controller_arg is not None:
        words = "controller_arg needs a controller: name one, or remove controller_arg"
        raise bad_request(ARG_WITHOUT_CONTROLLER if request.script else words, "controller_arg")
    if request.script is not None:
        found["script"] = script_call(request.script)
    outputs = request.structured_outputs
    schemas: dict[str, Any] = {"json_schema": request.json_schema, "guided_json": request.guided_json}
    regexes = {"regex": request.regex, "guided_regex": request.guided_regex}
    choices = {"choice": request.choice, "guided_choice": request.guided_choice}
    grammars = {"grammar": request.grammar, "guided_grammar": request.guided_grammar}
    tags: dict[str, Any] = {}
    if outputs is not None:
        schemas["structured_outputs.json"] = outputs.json_
        schemas["structured_outputs.json_object"] = _OBJECT if outputs.json_object else None
        regexes["structured_outputs.regex"] = outputs.regex
        choices["structured_outputs.choice"] = outputs.choice
        grammars["structured_outputs.grammar"] = outputs.grammar
        tags["structured_outputs.structural_tag"] = outputs.structural_tag
    if response_format is not None:
        schemas["response_format"] = _OBJECT if response_format.type == "json_object" else None
        if response_format.json_schema is not None:
            schemas["response_format.json_schema.schema"] = response_format.json_schema.schema_
        tags["response_format"] = response_format.structural_tag
    for name, grammar in grammars.items():
        if grammar is not None:
            kind = grammar_controller(grammar)
            found[name] = replace(_call(kind, grammar, name), hint=_HINTS[kind])
    for name, regex in regexes.items():
        if regex is not None:
            found[name] = _call("regex", regex, name)
    for name, schema in schemas.items():
        if schema is not None:
            found[name] = _call("json_schema", _parsed(schema, name), name)
    for name, texts in choices.items():
        if texts is not None:
            found[name] = _call("choice", texts, name)
    for name, tag in tags.items():
        if tag is not None:
            written = structural_tag_grammar(_structural_tag(tag, name), start or Start(), name)
            found[name] = _call("kbnf", written, name)
    if outputs is not None and not any(name.startswith("structured_outputs.") for name in found):
        raise bad_request(
            "structured_outputs has no constraint: give one, or remove it", "structured_outputs"
        )
    if len(found) > 1:
        raise bad_request(f"only one of {' and '.join(found)} can constrain an answer", list(found)[1])
    return next(iter(found.values()), None)


def _named_for_vllm(xargs: VllmArguments) -> dict[str, ControllerCall]:
    """Returns the controllers by the names of their fields. Raises ApiError."""
    found = {}
    at = "vllm_xargs."
    if xargs.aici_controller is not None:
        arg = argument_text(xargs.aici_arg, f"{at}aici_arg")
        found[f"{at}aici_controller"] = ControllerCall(
            xargs.aici_controller, arg, f"{at}aici_controller", f"{at}aici_arg"
        )
    elif xargs.aici_arg is not None:
        words = "aici_arg needs aici_controller; the argument of a script is the member arg of aici_script"
        raise bad_request(words, f"{at}aici_arg")
    if xargs.aici_script is not None:
        where = f"{at}aici_script"
        body = xargs.aici_script
        if isinstance(body, str):
            try:
                body = ScriptBody.model_validate(_parsed(body, where))
            except ValidationError as error:
                raise bad_request(error.errors()[0]["msg"], where) from None
        found[where] = script_call(body, where)
    return found


def _parsed(value: Any, param: str) -> Any:
    """Returns a JSON value, which may also be given as a text."""
    if not isinstance(value, str):
        return value
    try:
        return read_json(value)
    except ValueError as error:
        raise bad_request(f"{param} is not JSON: {error}", param) from None


def _structural_tag(value: Any, param: str) -> StructuralTag:
    """Returns a structural tag, which may also be given as a text in JSON."""
    try:
        return StructuralTag.model_validate(_parsed(value, param))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(step) for step in problem["loc"])[:_MAX_PLACE]
        raise bad_request(f"{param}.{place}: {problem['msg']}", param) from None


def _call(controller: str, value: Any, param: str) -> ControllerCall:
    return ControllerCall(controller, argument_text(value, param), param, param)
