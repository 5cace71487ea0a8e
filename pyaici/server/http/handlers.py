"""Exception handlers: every error becomes an answer with a status, and a body that names the cause.

`middleware.RequestIds` answers exceptions that no handler here covers; those are defects of the server.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, get_args

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from pyaici.server.http.bodies import BodyRefused
from pyaici.server.http.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fastapi import FastAPI, Request


_FIELD = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
#: most characters of a name that is compared with ours, and that an error repeats
_MAX_NAME = 64
#: pydantic's names for members of unions
_TYPES = {"str", "int", "float", "bool", "dict", "list"}


def add_handlers(app: FastAPI) -> None:
    """Registers the handlers of all errors with the application."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(UnicodeEncodeError, _surrogate)


def _error_response(request: Request, error: ApiError) -> JSONResponse:
    body = error.body_at(request.url.path)
    return JSONResponse(body, status_code=error.status, headers=error.headers)


async def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return _error_response(request, error)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """Answers a body that is not JSON, or does not have the shape that the route takes."""
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    # in a union, the member that a refused field belongs to is the one that the client has written
    first = next((found for found in errors if found["type"] == "field"), errors[0])
    if first["type"] == "json_invalid":
        where = f" at character {first['loc'][-1]}" if len(first["loc"]) > 1 else ""
        return _error_response(
            request, ApiError(400, f"the body is not JSON{where}: {first['ctx']['error']}", code="not_json")
        )
    if (
        first["loc"] == ("body",)
        and not is_declared_as_json(request)
        and isinstance(first.get("input"), bytes)
    ):
        return _error_response(request, wrong_content_type(request))
    if first["type"] != "field" and (wanted := _alternatives(request, errors)):
        name = str(first["loc"][1])
        return _error_response(request, ApiError(400, f"{name}: it must be {wanted}", param=name))
    # in a union, pydantic also names the member, which the client has not written
    parts = [part if isinstance(part, int) else part[:_MAX_NAME] for part in first["loc"][1:]]
    place = [part for part in parts if isinstance(part, int) or _FIELD.fullmatch(part)]
    place += [first["ctx"]["param"]] if first["type"] == "field" else []
    param = ".".join(str(part) for part in place if part not in _TYPES)
    message = first["msg"].removeprefix("Value error, ")
    problem = message[:1].lower() + message[1:]
    if first["type"] in ("model_attributes_type", "dict_type"):
        problem = f"{'it' if param else 'the body'} must be a JSON object"
    if first["type"] == "too_long" and first["ctx"]["max_length"] == 0:
        problem = "this field is not supported"
    if first["type"] == "extra_forbidden":
        known = list(request.scope["route"].body_field.field_info.annotation.model_fields)
        longer = [name for name in known if name.endswith(f"_{param}")]  # e.g. controller_arg for arg
        meant = difflib.get_close_matches(param, known, n=1) or longer if len(place) == 1 else []
        problem = f"there is no such field{f'; did you mean {meant[0]}?' if meant else ''}"
    return _error_response(request, ApiError(400, f"{param}: {problem}" if param else problem, param=param))


def _alternatives(request: Request, errors: Sequence[Mapping[str, Any]]) -> str | None:
    """Returns a field's description if the field may be of several kinds and is none of them."""
    place = errors[0]["loc"][:2]
    kinds = {error["loc"][2] for error in errors if error["loc"][:2] == place and len(error["loc"]) > 2}
    if len(kinds) < 2 or any(isinstance(kind, int) for kind in kinds):
        return None
    field = request.scope["route"].body_field.field_info.annotation.model_fields.get(place[1])
    # of `X | None`, the errors name the fields of X
    return field.description if field is not None and len(get_args(field.annotation)) > 2 else None


def is_declared_as_json(request: Request) -> bool:
    """Tells whether the content type of the request is JSON. Routes refuse other bodies.

    Pages of other sites can send other content types without permission.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def wrong_content_type(request: Request) -> ApiError:
    """Returns the error for a body of another content type.

    Pages of other sites may send such bodies without permission, but not JSON.
    """
    sent = request.headers.get("content-type")
    found = "no content type" if sent is None else f"the content type {sent}"
    message = f"the body has {found}: send JSON with the header content-type: application/json"
    return ApiError(400, message, code="not_json")


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    """Answers an unknown route, a wrong method, or a body that was refused while it arrived."""
    assert isinstance(error, HTTPException)
    if isinstance(error, BodyRefused):
        return _error_response(request, error.error)
    kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
    headers, message = dict(error.headers or {}), str(error.detail)
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
        message = f"{request.url.path[:_MAX_NAME]} takes {headers['Allow']}, and not {request.method}"
    if error.status_code == 404:
        message = f"there is no route {request.url.path[:_MAX_NAME]}"
        paths = {route.path for route in _routes(request)}
        if request.url.path == "/playground":
            message += "; the playground is at /"
        elif meant := difflib.get_close_matches(request.url.path[:_MAX_NAME], paths, n=1):
            message += f"; did you mean {meant[0]}?"
        else:
            nearest = difflib.get_close_matches(request.url.path[:_MAX_NAME], paths, n=1, cutoff=0)[0]
            message += f"; the nearest is {nearest}, and GET /openapi.json describes all"
    return _error_response(request, ApiError(error.status_code, message, kind=kind, headers=headers))


def _routes(request: Request) -> list[Route]:
    """Returns all routes. `app.routes` has those of a router only within an object of its own."""
    found: list[Route] = request.app.state.routes
    return found


def _methods(request: Request) -> list[str]:
    """Returns all methods of a path. Each may be a separate route, which knows only its own method."""
    found: set[str] = set()
    for route in _routes(request):
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


async def _surrogate(request: Request, error: Exception) -> JSONResponse:
    """Answers halves of surrogate pairs: JSON can carry them in any text of a request."""
    return _error_response(
        request, ApiError(400, "the request contains half of a surrogate pair, which is not a character")
    )
