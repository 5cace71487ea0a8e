"""Answers with an error in place of the application."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope, Send

    from pyaici.server.errors import ApiError


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
