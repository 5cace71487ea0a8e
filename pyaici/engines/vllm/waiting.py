"""Requests of vLLM that wait until their controller is ready, as others wait for their grammar."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from vllm.v1.request import RequestStatus
from vllm.v1.structured_output.request import StructuredOutputRequest

if TYPE_CHECKING:
    from pyaici.engines.vllm.connection import Prepared


def hold(request: Any, grammar: Future[Any]) -> None:
    """Keeps a request waiting until its grammar is there."""
    structured = StructuredOutputRequest(params=None)
    structured.grammar = grammar
    structured.reasoning_ended = True
    request.structured_output_request = structured
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR


def release(request: Any, grammar: Any) -> None:
    """Has it wait no longer."""
    request.structured_output_request.grammar = grammar


@contextlib.contextmanager
def suspended(requests: list[Any]) -> Iterator[None]:
    """While this holds their grammars seem not to be ready, so they are not scheduled.

    Not for longer: passes that are under way may still need their masks.
    """
    grammars = [request.structured_output_request.grammar for request in requests]
    try:
        for request in requests:
            request.structured_output_request.grammar = None
        yield
    finally:
        for request, grammar in zip(requests, grammars, strict=True):
            request.structured_output_request.grammar = grammar


def then(future: Future[Prepared], make: Callable[[Prepared], Any]) -> Future[Any]:
    """A future of what is made of another's result."""
    made: Future[Any] = Future()

    def done(_: Any) -> None:
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or error is not None:
            made.set_exception(error or RuntimeError("the request has ended"))
        else:
            made.set_result(make(future.result()))

    future.add_done_callback(done)
    return made


def failed(error: Exception) -> Future[Any]:
    """A future that has failed."""
    future: Future[Any] = Future()
    future.set_exception(error)
    return future
