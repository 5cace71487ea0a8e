"""Parses and validates large JSON bodies in a thread, so that the event loop can serve others."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from pyaici.server.http.errors import bad_request
from pyaici.server.http.handlers import is_declared_as_json
from pyaici.server.http.sse import while_connected

if TYPE_CHECKING:
    from fastapi._compat import ModelField

    from pyaici.server.scheduling.threads import Reading


Result = TypeVar("Result")
#: more than a field has kinds of values
_MAX_ERRORS = 16
#: Most bytes of a body that is parsed on the event loop. That takes at most 2 ms, and the body does not wait
#: for other bodies.
SMALL_BODY = 64 << 10
#: Objects and arrays in one body. json.loads holds the interpreter's lock until it has ended: 4 MiB of empty
#: arrays took 1.7 s, because of garbage collections, and 0.1 GiB; this many take 12 ms and 10 MiB.
MAX_CONTAINERS = 1 << 16


def parse_json_body(data: bytes) -> Any:
    """Parses the body of a request, within the limit on objects and arrays.

    Raises ApiError if it has too many objects and arrays, ValueError if it is not JSON, and RecursionError.
    """
    if len(data) > MAX_CONTAINERS and count_containers(data) > MAX_CONTAINERS:
        raise bad_request(f"the body has more than {MAX_CONTAINERS} objects and arrays")
    return json.loads(data)


def count_containers(data: bytes) -> int:
    """Returns how many objects and arrays a JSON text has; the count may be too high if they are few.

    In UTF-16 and UTF-32, which JSON may have too, brackets inside of strings count as well.
    """
    brackets = data.count(b"[") + data.count(b"{")
    if brackets <= MAX_CONTAINERS or b"\0" in data:
        return brackets
    data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    characters = np.frombuffer(data, np.uint8)
    in_string = np.logical_xor.accumulate(characters == ord('"'))
    opens = (characters == ord("[")) | (characters == ord("{"))
    return int(np.count_nonzero(opens & ~in_string))


async def parse_body(request: Request, data: bytes, parse: Callable[[bytes], Result]) -> Result:
    """Returns `parse(data)`; for a large body, a thread calls it when it is the caller's turn.

    Raises what `parse` raises, and ApiError if too many bodies wait already.
    """
    if len(data) <= SMALL_BODY:
        return parse(data)
    reading: Reading = request.app.state.service.reading
    return await while_connected(request, reading.parse(request.state.user, partial(parse, data)))


class JsonRoute(APIRoute):
    """A route that parses and validates large bodies with `parse_body`; FastAPI would use the event loop."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns FastAPI's handler, which gets large bodies as validated models."""
        handle, field = super().get_route_handler(), self.body_field
        if field is None:
            return handle

        async def handle_parsed(request: Request) -> Response:
            data = await request.body()
            if len(data) <= SMALL_BODY or not is_declared_as_json(request):
                return await handle(request)
            return await handle(
                _ParsedRequest(request, data, await parse_body(request, data, partial(_validate, field)))
            )

        return handle_parsed


class _ParsedRequest(Request):
    """A request whose body is a validated model, or the error of parsing it, which FastAPI answers."""

    def __init__(self, request: Request, data: bytes, parsed: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._data = data
        self._parsed = parsed

    async def body(self) -> bytes:
        """Returns the body as it was sent."""
        return self._data

    async def json(self) -> Any:
        """Returns the model, which pydantic takes without validating it again."""
        if isinstance(self._parsed, Exception):
            raise self._parsed
        return self._parsed


def _validate(field: ModelField, data: bytes) -> Any:
    """Returns a validated model, or the error of parsing. Raises RequestValidationError and ApiError."""
    try:
        value = parse_json_body(data)
    except (ValueError, RecursionError) as error:
        return error
    model, errors = field.validate(value, {}, loc=("body",))
    del value  # otherwise tracebacks keep it until the event loop frees it
    if errors:
        # the handler looks at the first error, and at others only if they are about the same field
        raise RequestValidationError([{**error, "input": None} for error in errors[:_MAX_ERRORS]])
    return model
