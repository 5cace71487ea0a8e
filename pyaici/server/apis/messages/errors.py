"""Errors of the messages API: a kind, a message, and the field of the request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ValidationError

Kind = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "rate_limit_error",
    "api_error",
    "overloaded_error",
]

#: the HTTP status that goes with each kind
STATUS: Mapping[Kind, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "api_error": 500,
    "overloaded_error": 503,
}


class MessagesError(Exception):
    """An answer that is an error. `param`: path of the field in the request, such as ``messages.0.role``."""

    def __init__(self, kind: Kind, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.param = param

    @property
    def status(self) -> int:
        """The HTTP status of the answer."""
        return STATUS[self.kind]

    def body(self) -> dict[str, Any]:
        """Returns the JSON body of the answer."""
        error = {"type": self.kind, "message": self.message}
        if self.param is not None:
            error["param"] = self.param
        return {"type": "error", "error": error}


def invalid(message: str, param: str | None = None) -> MessagesError:
    """Returns the error for an invalid request."""
    return MessagesError("invalid_request_error", message, param)


def from_validation(error: ValidationError, body: Any) -> MessagesError:
    """Returns the error for an invalid body: the first of the innermost problems.

    A field that may have one of several types yields a problem for each type. The innermost problem belongs
    to the type that the client intended.
    """
    problems = [(_path(body, problem["loc"]), problem) for problem in error.errors()]
    path, problem = max(problems, key=lambda found: len(found[0]))
    path += [problem["ctx"]["param"]] if problem["type"] == "field" else []
    param = ".".join(str(step) for step in path) or None
    if problem["type"] == "missing":
        return invalid(f"{param} is required", param)
    return invalid(f"{param or 'the body'}: {problem['msg']}", param)


def _path(body: Any, location: tuple[int | str, ...]) -> list[int | str]:
    """Returns the steps of pydantic's location that exist in the body; others name alternatives of a type."""
    path: list[int | str] = []
    for i, step in enumerate(location):
        is_key = isinstance(body, Mapping) and step in body
        is_index = isinstance(body, list) and isinstance(step, int) and step < len(body)
        if is_key or is_index:
            body = body[step]
            path.append(step)
        elif isinstance(body, Mapping) and i == len(location) - 1:
            path.append(step)  # the missing field
    return path
