"""What errors become: answers with a status, and a body that names the cause.

What no handler here knows is a mistake of ours; `middleware.RequestIds` answers it.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from pyaici.server.http.bodies import BodyRefused
from pyaici.server.http.errors import ApiError

if TYPE_CHECKING:
    from fastapi import FastAPI, Request


_FIELD = re.compile("[A-Za-z_][A-Za-z0-9_-]*")
#: characters of a name: longer ones are clients' own, are not looked for among ours, and not repeated whole
_MAX_NAME = 64
#: pydantic's names of members of unions
_TYPES = {"str", "int", "float", "bool", "dict", "list"}


def add_handlers(app: FastAPI) -> None:
    """Has the application answer all errors."""
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(UnicodeEncodeError, _no_character)


def _answer(request: Request, error: ApiError) -> JSONResponse:
    body = error.body_at(request.url.path)
    return JSONResponse(body, status_code=error.status, headers=error.headers)


async def _api_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return _answer(request, error)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    """The body is no JSON, or not of the shape that the route takes."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        where = f" at character {first['loc'][-1]}" if len(first["loc"]) > 1 else ""
        return _answer(
            request, ApiError(400, f"the body is not JSON{where}: {first['ctx']['error']}", code="not_json")
        )
    if first["loc"] == ("body",) and not says_json(request) and isinstance(first.get("input"), bytes):
        return _answer(request, not_said_to_be_json(request))
    # of a union, pydantic names the member as well, which is none of the client's words
    parts = [part if isinstance(part, int) else part[:_MAX_NAME] for part in first["loc"][1:]]
    place = [part for part in parts if isinstance(part, int) or _FIELD.fullmatch(part)]
    param = ".".join(str(part) for part in place if part not in _TYPES) or first.get("ctx", {}).get("param")
    message = first["msg"].removeprefix("Value error, ")
    problem = message[:1].lower() + message[1:]
    if first["type"] == "extra_forbidden":
        known = list(request.scope["route"].body_field.field_info.annotation.model_fields)
        meant = difflib.get_close_matches(str(place[-1]), known, n=1) if len(place) == 1 else []
        problem = f"there is no such field{f'; did you mean {meant[0]}?' if meant else ''}"
    return _answer(request, ApiError(400, f"{param}: {problem}" if param else problem, param=param))


def says_json(request: Request) -> bool:
    """Where it does not a body is none to the routes: pages of others can send what does not."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def not_said_to_be_json(request: Request) -> ApiError:
    """For a body of another type: pages of other sites may send those unasked, not JSON."""
    sent = request.headers.get("content-type", "no content-type")
    words = f"the body comes as {sent}: send JSON, with the header content-type: application/json"
    return ApiError(400, words, code="not_json")


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    """There is no such route, or not with this method; or its body was refused while it arrived."""
    assert isinstance(error, HTTPException)
    if isinstance(error, BodyRefused):
        return _answer(request, error.error)
    kind = "not_found_error" if error.status_code == 404 else "invalid_request_error"
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods(request))
    return _answer(request, ApiError(error.status_code, str(error.detail), kind=kind, headers=headers))


def _methods(request: Request) -> list[str]:
    """All that the path has: each method may be a route of its own, and the first one knows its own only."""
    found: set[str] = set()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            found |= route.methods or set()
    return sorted(found)


async def _no_character(request: Request, error: Exception) -> JSONResponse:
    """JSON can carry halves of surrogate pairs, and they may stand wherever a request has a text."""
    return _answer(request, ApiError(400, "the request has half of a surrogate pair, which is no character"))
