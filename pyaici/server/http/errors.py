"""Errors as clients get them: a status, and a body in the format of the API that was called."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import (
    AiciError,
    ClosedError,
    ControllerError,
    ForeignDaemonError,
    ModuleError,
    NotOwnerError,
    OfferError,
    OwnerLimitError,
    ProtocolError,
    RuntimeFailure,
    RuntimeTimeoutError,
    SupervisorDiedError,
    UnknownControllerError,
    UnknownRunError,
    VocabularyError,
)
from aicirt.system.logs import fields

if TYPE_CHECKING:
    from starlette.types import Scope, Send

_log = logging.getLogger("aicirt.server")


#: kinds of errors in the Responses API, by those of OpenAI's other APIs
_RESPONSES_KINDS = {
    "invalid_request_error": "invalid_request",
    "not_found_error": "not_found",
    "rate_limit_error": "too_many_requests",
    "api_error": "server_error",
    "overloaded_error": "server_error",
}


class ApiError(Exception):
    """The error that a request ends with.

    `kind` is the error's type in OpenAI's API; `code` identifies the cause for programs; `param` names the
    field of the request.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        log: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        #: what the controller printed
        self.log = log
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """Returns the body in the format of OpenAI's API, to which `log` is an addition."""
        error: dict[str, Any] = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        if self.log:
            error["log"] = self.log
        return {"error": error}

    def messages_body(self) -> dict[str, Any]:
        """Returns the body in the format of the messages API."""
        error = {"type": self.kind, "message": self.message}
        if self.param is not None:
            error["param"] = self.param
        return {"type": "error", "error": error}

    def responses_body(self) -> dict[str, Any]:
        """Returns the body in the format of the Responses API, which has kinds of its own."""
        body = self.body()
        body["error"]["type"] = _RESPONSES_KINDS.get(self.kind, self.kind)
        return body

    def body_at(self, path: str) -> dict[str, Any]:
        """Returns the body in the format of the API that the path belongs to."""
        if path == "/v1/responses" or path.startswith("/v1/responses/"):
            return self.responses_body()
        if path.startswith(("/api/v1/", "/v1/messages")):
            return self.messages_body()
        return {"error": self.message} if path.startswith("/api/") else self.body()


_SEE_LOG = "the server's log has the cause"
#: what clients learn of failures that are not theirs, by code
_FAILURES = {
    AiciError.code: f"the server failed: {_SEE_LOG}",
    RuntimeFailure.code: f"the runtime of controllers failed: {_SEE_LOG}",
    ProtocolError.code: f"the runtime of controllers refused a call: {_SEE_LOG}",
    "shared_store": f"the shared store of controllers cannot be used now: {_SEE_LOG}",
    ClosedError.code: "the runtime of controllers is closed: try again later",
    SupervisorDiedError.code: "the runtime of controllers has ended: try again later",
    ForeignDaemonError.code: f"the runtime of controllers cannot be used: {_SEE_LOG}",
    RuntimeTimeoutError.code: f"the runtime of controllers did not answer: {_SEE_LOG}",
}


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Returns the error for a mistake of the client."""
    return ApiError(400, message, param=param, code=code)


def not_found(message: str, param: str | None = None) -> ApiError:
    """Returns the error for something that does not exist."""
    return ApiError(404, message, kind="not_found_error", code="not_found", param=param)


def forbidden(message: str) -> ApiError:
    """Returns the error for a user whose role does not allow the request."""
    return ApiError(403, message, kind="permission_error", code="forbidden")


def internal(request_id: str) -> ApiError:
    """Returns the error for a defect of the server: the log has the cause, under the client's request id."""
    return ApiError(500, f"internal error: see request {request_id} in the server's log", kind="api_error")


def busy(message: str, seconds: int = 1) -> ApiError:
    """Returns the error for a request that may succeed later."""
    headers = {"Retry-After": str(seconds)}
    return ApiError(503, message, kind="overloaded_error", code="overloaded", headers=headers)


def too_many(message: str, seconds: int = 1) -> ApiError:
    """Returns the error for a client that has reached its limit; other clients are not affected."""
    headers = {"Retry-After": str(seconds)}
    return ApiError(429, message, kind="rate_limit_error", code="too_many_waiting", headers=headers)


def public_message(error: AiciError) -> str:
    """Returns the message that clients get. Those of failures name paths and processes: they are logged."""
    if (message := _FAILURES.get(error.code)) is None:
        return error.message
    _log.warning("a request failed (%s): %s", error.code, error.message, extra=fields(code=error.code))
    return message


def from_aici(error: AiciError, param: str | None = None) -> ApiError:
    """Returns the error of the runtime as the server's client gets it."""
    log = str(error.detail.get("log", ""))
    message = public_message(error)
    match error:
        case NotOwnerError():
            return ApiError(403, message, kind="permission_error", code=error.code, param=param)
        case UnknownControllerError() | UnknownRunError():
            return ApiError(404, message, kind="not_found_error", code=error.code, param=param)
        case OwnerLimitError():
            return ApiError(
                429,
                message,
                kind="rate_limit_error",
                code=error.code,
                param=param,
                headers={"Retry-After": "1"},
            )
        case ModuleError() | ControllerError() | VocabularyError() | OfferError():
            return ApiError(400, message, code=error.code, param=param, log=log)
        case RuntimeFailure():
            return ApiError(503, message, kind="overloaded_error", code=error.code, param=param)
        case _:
            return ApiError(500, message, kind="api_error", code=error.code, param=param, log=log)


async def refuse(scope: Scope, send: Send, error: ApiError) -> None:
    """Sends the error. The body need not have been read: `connections.py` drops a bounded part of it."""
    data = json.dumps(error.body_at(scope["path"])).encode()
    head = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(data)).encode()),
        *((name.lower().encode(), value.encode()) for name, value in error.headers.items()),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": head})
    await send({"type": "http.response.body", "body": data})


def check_text(text: str, param: str) -> None:
    """Raises ApiError for a text that JSON can carry but UTF-8 cannot encode."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise bad_request(
                "the text contains half of a surrogate pair, which is not a character", param
            ) from None
