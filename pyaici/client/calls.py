"""Answers the calls of controllers: with functions of this process, or with a handler of events.

A controller makes a call by name, with arguments in JSON, and goes on; the answer reaches it as a variable.
Who answers is up to the request's offer. The engine takes no part: aicirt passes calls on, over the control
connection of the client that has made the offer.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import runpy
import threading
import traceback
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aicirt.contract.errors import OfferError, RuntimeFailure
from aicirt.system.files import Closing

if TYPE_CHECKING:
    from pyaici.client.control import Control

_log = logging.getLogger("pyaici.calls")
#: a function that answers a call: it gets the members of the arguments by name, the entries of a list by
#: position, or else one value; what it returns is written as JSON. It may be a coroutine function
Function = Callable[..., Any]


class CallError(Exception):
    """A call has failed; the controller gets the code and the message. Functions may raise it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class CallEvent:
    """A call was made, or has ended."""

    #: the same for all events of a call, also when a step is repeated
    id: str
    #: of the offer that the request has named
    token: str
    #: None: the call was made. Otherwise it has ended with this code of an error, "" without one
    code: str | None
    name: str = ""
    #: JSON
    arguments: bytes = b""
    owner: str = ""
    #: whether this offer is to answer it
    mine: bool = False
    #: of its request, as a W3C `traceparent`; "" if nothing is traced
    trace: str = ""
    #: at the end: how long it took, and bytes of its result
    seconds: float = 0.0
    result_bytes: int = 0
    #: the result as JSON, `{"value": ...}` or `{"error": ...}`, if the offer wants results
    result: bytes = b""

    @property
    def number(self) -> int:
        """The call's number in its request, from 1."""
        return int(self.id.rpartition("-")[2])

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> CallEvent:
        """Reads an event as `take` returns it."""
        if "ended" in wire:
            seconds, size, result = wire["seconds"], wire["result"], wire.get("content", b"")
            ended = wire["ended"], wire["token"], wire["code"]
            return cls(*ended, seconds=seconds, result_bytes=size, result=result)
        fields = wire["name"], wire["arguments"], wire["owner"], wire["by"] == wire["offer"]
        return cls(wire["call"], wire["token"], None, *fields, trace=wire.get("trace", ""))


class Offer(Closing):
    """An offer to answer calls, which requests name by its token until it is closed."""

    def __init__(self, answerer: Answerer, token: str) -> None:
        self._answerer = answerer
        self.token = token

    def answer(self, id: str, value: Any) -> bool:
        """Answers a call with a value that JSON can express. Returns False if nobody waits for it any more.

        Raises TypeError or ValueError if JSON cannot express it.
        """
        return self._answerer.answer(id, json.dumps(value, allow_nan=False).encode())

    def refuse(self, id: str, code: str, message: str) -> bool:
        """Answers a call with an error."""
        return self._answerer.answer(id, message.encode("utf-8", "replace"), code)

    def replace(self) -> None:
        """Withdraws a public offer for a new one: its calls under way are handled until `close`."""
        self._answerer.withdraw(self.token, forget=False)

    def close(self) -> None:
        """Withdraws the offer: calls under way and later ones get the error `gone`."""
        self._answerer.withdraw(self.token)


class Answerer(Closing):
    """The calls that a connection answers."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._lock = threading.Lock()
        #: by token: what handles the events of an offer
        self._handlers: dict[str, Callable[[CallEvent], None]] = {}
        self._thread: threading.Thread | None = None
        self._closed = False

    def offer(
        self,
        calls: Sequence[Mapping[str, Any]],
        handle: Callable[[Offer, CallEvent], None],
        *,
        owner: str | None = None,
        for_all: bool = False,
        public: bool = True,
        watched: bool = False,
        name: str = "",
        results: bool = False,
        trace: str = "",
    ) -> Offer:
        """Offers calls, each with `name`, `description` and `schema` (of the arguments; both may be missing).

        `handle` gets the events, in a thread of its own that it must not hold up; the offer's `answer` and
        `refuse` may be called at any time, from any thread. `for_all`: all requests that may make calls may
        make these; else those that name the offer. `public`: such requests may also make the calls that
        others offer for all; `watched`: `handle` gets the events of all calls of these requests, also of
        those that others answer or nobody; `results`: with the results. `name`: under which others of the
        owner `send` messages to the controllers of these requests. `trace`: of these requests, as a W3C
        `traceparent`, for the program that answers.

        Raises OfferError for an invalid description, and SpaceError beyond a limit.
        """
        try:
            described = [plain(call) for call in calls]
        except ValueError as problem:
            raise OfferError(f"the offer of calls cannot be written as JSON: {problem}") from None
        with self._lock:  # so that no event is read before its handler is known
            token = self._control.call(
                "offer",
                calls=described,
                owner=owner,
                for_all=for_all,
                public=public,
                watched=watched,
                run=name,
                results=results,
                trace=trace,
            )
            offer = Offer(self, token)
            self._handlers[token] = lambda event: handle(offer, event)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="calls", daemon=True)
                self._thread.start()
        return offer

    def offer_functions(
        self,
        functions: Mapping[str, Function],
        *,
        owner: str | None = None,
        for_all: bool = False,
        told: Callable[[CallEvent], None] | None = None,
        name: str = "",
    ) -> Offer:
        """Offers functions by the names of the calls, and runs them in threads.

        An exception becomes an error with the code `failed`, or with its own (`CallError`). `told`: gets all
        events of the calls as `handle` in `offer`. `name`: see `offer`.
        """

        def handle(offer: Offer, event: CallEvent) -> None:
            if told is not None:
                told(event)
            if event.mine and event.code is None:
                in_thread(partial(_answer_with, offer, event, functions[event.name]))

        described = [describe(name, function) for name, function in functions.items()]
        watched = told is not None
        return self.offer(described, handle, owner=owner, for_all=for_all, watched=watched, name=name)

    def send(self, run: str, value: Any, owner: str | None = None) -> None:
        """Sends a value that JSON can express to the owner's run of this name, for its `receive`.

        Raises UnknownRunError, OwnerLimitError if the run does not receive its messages, and TypeError or
        ValueError if JSON cannot express the value.
        """
        self._control.call("send", run=run, value=json.dumps(value, allow_nan=False).encode(), owner=owner)

    def answer(self, id: str, result: bytes, code: str = "") -> bool:
        """Answers a call with JSON, or with the message of an error with this code.

        An answer that aicirt would refuse for its length is not sent.
        """
        limit = self._control.hello.get("answer_bytes", len(result))
        if len(result) > limit:
            problem = f"the answer has {len(result)} bytes; the limit is {limit} (answer_bytes)"
            result, code = problem.encode(), "too_long"
        try:
            return bool(self._control.call("answer", call=id, result=result, code=code))
        except RuntimeFailure:  # the connection has ended, and the call with it
            return False

    def name_sources(self, sources: Mapping[str, Mapping[str, Any]]) -> None:
        """Tells `health` where the calls come from: `state` and the number of `tools` by name."""
        if not self._closed:
            try:
                self._control.drop_answer(self._control.post("sources", sources=dict(sources)))
            except RuntimeFailure:  # the connection has ended
                return

    def withdraw(self, token: str, *, forget: bool = True) -> None:
        """Withdraws an offer. Idempotent. `forget`: its events are not handled any more."""
        handler = self._handlers.pop(token, None) if forget else self._handlers.get(token)
        if handler is not None and not self._closed:
            try:
                self._control.drop_answer(self._control.post("withdraw", token=token))
            except RuntimeFailure:
                return

    def _serve(self) -> None:
        while not self._closed:
            try:
                events = self._control.call("take")
            except RuntimeFailure:  # the connection has ended
                return
            for wire in events:
                event = CallEvent.from_wire(wire)
                with self._lock:
                    handler = self._handlers.get(wire["offer"])
                if handler is not None:
                    try:
                        handler(event)
                    except Exception:
                        _log.exception("handling a call failed")

    def close(self) -> None:
        """Forgets all offers. The caller closes the connection, which withdraws them."""
        self._closed = True
        self._handlers.clear()


def in_thread(work: Callable[[], None]) -> None:
    """Does work for a call in a thread of its own, which the end of the program does not wait for.

    The limits on calls at a time bound the number of threads.
    """
    threading.Thread(target=work, name="call", daemon=True).start()


def _answer_with(offer: Offer, event: CallEvent, function: Function) -> None:
    """Answers a call with a function."""
    value, error = call_function(function, event.arguments)
    try:
        if error is None:
            offer.answer(event.id, value)
    except (TypeError, ValueError) as problem:
        error = "failed", f"the answer is not JSON: {problem}"
    if error is not None:
        offer.refuse(event.id, *error)


def call_function(function: Function, arguments: bytes | str) -> tuple[Any, tuple[str, str] | None]:
    """Calls a function with the arguments of a call, in JSON.

    Returns what it returns and None; or None, and the code and message of an error.
    """
    try:
        return _result(function, arguments), None
    except CallError as error:
        return None, (error.code, error.message)
    except Exception as error:
        return None, ("failed", f"{type(error).__name__}: {error}")


def run_file(path: str | Path, name: str) -> dict[str, Any]:
    """Runs a file of Python as a module of this name; returns what it defines.

    Raises OSError, and ValueError if running the file fails.
    """
    file = str(path)
    try:
        return runpy.run_path(file, run_name=name)
    except FileNotFoundError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"line {frame.lineno}: " for frame in frames if frame.filename == file]
        at = f"line {error.lineno}: " if isinstance(error, SyntaxError) else "".join(lines[-1:])
        raise ValueError(f"{file} fails: {at}{type(error).__name__}: {error}") from error


def load_functions(path: str | Path) -> dict[str, Function]:
    """Runs a file of Python and returns the functions that it defines, by name; `_` first leaves one out.

    A dictionary `CALLS` in it, of functions by names, replaces them: names of calls may have dots. Raises
    OSError, and ValueError if there are no functions, or if running the file fails.
    """
    names = run_file(path, "calls")
    if isinstance(given := names.get("CALLS"), dict):
        found = {str(name): function for name, function in given.items() if callable(function)}
    else:
        found = {
            name: value
            for name, value in names.items()
            if inspect.isfunction(value) and value.__module__ == "calls" and not name.startswith("_")
        }
    if not found:
        raise ValueError(f"{path} defines no functions: define one for each call, with its name")
    return found


def _result(function: Function, arguments: bytes | str) -> Any:
    """Calls a function with the arguments of a call. Raises CallError if they do not fit."""
    try:
        given = json.loads(arguments) if arguments else {}
    except (ValueError, RecursionError) as error:
        raise CallError("arguments", f"the arguments are not JSON: {error}") from None
    args, kwargs = (
        ([], given) if isinstance(given, dict) else (given if isinstance(given, list) else [given], {})
    )
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise CallError("arguments", f"the arguments do not fit: {error}") from None
    except ValueError:  # a built-in function without a signature
        pass
    found = function(*args, **kwargs)
    return asyncio.run(found) if inspect.iscoroutine(found) else found


# -- descriptions --------------------------------------------------------------------------------------------


def plain(described: Any) -> Any:
    """Returns a description as all who read it can have it: integers beyond 64 bits are floats.

    Raises ValueError for what JSON or UTF-8 cannot express.
    """
    try:
        text = json.dumps(described, allow_nan=False, ensure_ascii=False)
        text.encode()
        return json.loads(text, parse_int=_short_number)
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None


def _short_number(digits: str) -> int | float:
    number = int(digits)
    return number if -(2**63) <= number < 2**64 else float(number)


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
_TYPES |= {type(None): "null", tuple: "array"}


def describe(name: str, function: Function) -> dict[str, Any]:
    """Returns name, description and schema of a call that a function answers.

    The schema is the function's attribute `schema` if it has one, else that of its signature.
    """
    about = inspect.getdoc(function) or ""
    described: dict[str, Any] = {"name": name, "description": about.partition("\n\n")[0]}
    if (schema := getattr(function, "schema", None)) is not None:
        return {**described, "schema": schema}
    try:
        parameters = inspect.signature(function).parameters.values()
        hints = typing.get_type_hints(function)
    except (TypeError, ValueError, NameError):  # without a signature, or with a type that is unknown here
        return described
    named = [entry for entry in parameters if entry.kind in (entry.POSITIONAL_OR_KEYWORD, entry.KEYWORD_ONLY)]
    described["schema"] = {
        "type": "object",
        "properties": {entry.name: _schema(hints.get(entry.name, Any)) for entry in named},
        "required": [entry.name for entry in named if entry.default is entry.empty],
        "additionalProperties": len(named) < len(list(parameters)),
    }
    return described


def _schema(hint: Any) -> dict[str, Any]:
    """Returns the schema of values of a type, as far as it can be told."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(each) for each in inner]}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    name = _TYPES.get(origin or hint)
    if name is None:
        return {}
    found: dict[str, Any] = {"type": name}
    if name == "array" and inner:
        found["items"] = _schema(inner[0])
    if name == "object" and inner:
        found["additionalProperties"] = _schema(inner[-1])
    return found
