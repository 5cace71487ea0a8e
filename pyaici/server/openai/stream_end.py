"""How every stream of OpenAI's API ends: with usage if it was asked for, with an error, and with [DONE]."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from pyaici.server.errors import ApiError
from pyaici.server.sse import event

if TYPE_CHECKING:
    from sse_starlette import ServerSentEvent

    from pyaici.server.openai.requests import StreamOptions
    from pyaici.server.openai.usage import Usage


async def ended(
    chunks: AsyncGenerator[ServerSentEvent, None],
    usage: Usage,
    options: StreamOptions | None,
    head: Mapping[str, Any],
) -> AsyncGenerator[ServerSentEvent, None]:
    """The chunks, and the end. Raises ApiError before the first answer has begun: it can be a status then."""
    try:
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield chunk
    except ApiError as error:
        if not usage.begun:
            raise
        yield event(error.body())
    else:
        if options is not None and options.include_usage:
            yield event({**head, "choices": [], "usage": usage.wire()})
    yield event("[DONE]")
