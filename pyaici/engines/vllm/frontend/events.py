"""Events and failures of a controlled request, which its client receives with its tokens.

A client gets events if it asks for `aici_events`.

The events are in `RequestOutput.kv_transfer_params`, a dictionary that vLLM carries from its engine to its
clients for cache connectors. Requests with controllers have no such connector. The key `aici` holds the list
of events since the last output of the same sequence, oldest first. Each event is a list of a word and values:

==============================  ===========================================================================
``["sampled", tokens]``         token ids that were sampled
``["sampled", [token], count]`` the same with `aici_counts`: the controller allowed so many tokens
``["forced", tokens]``          token ids that the controller appended
``["back", count]``             number of tokens that were removed from the end
``["forked", indices]``         sequences of the request that begin as copies of this one. Their outputs begin
                                with the tokens that this sequence had generated, without events for them
``["copied", indices]``         the same for copies that the engine makes before the first step
``["suspended"]``               the sequence skips steps; its next event ends that
``["read_again", count]``       after a suspension: tokens that the cache had lost, and that are read again
``["log", text]``               output of the controller
``["variables", values]``       variables that controllers of the request wrote, shared by all its sequences:
                                base64 texts by name; names as in `VariablesChanged`
``["error", error]``            why it failed: code, message and details, as `AiciError.to_wire` writes them
==============================  ===========================================================================
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from aicirt.contract.errors import AiciError, RuntimeFailure
from pyaici.client.arguments import by_name

#: the key of the events in `kv_transfer_params`
KEY = "aici"


class Events:
    """The events of a sequence that have not been sent."""

    __slots__ = ("_list",)

    def __init__(self) -> None:
        self._list: list[list[Any]] = []

    def add(self, word: str, *what: Any) -> None:
        """Adds an event, unless a value is an empty list or text or a count of 0."""
        if not what or all(what):
            self._list.append([word, *what])

    def tokens(self, word: str, tokens: Sequence[int]) -> None:
        """Adds tokens."""
        for token in tokens:
            self.token(word, token)

    def token(self, word: str, token: int) -> None:
        """Adds a token. Consecutive tokens with the same word share an event."""
        if self._list and self._list[-1][0] == word and len(self._list[-1]) == 2:
            self._list[-1][1].append(token)
        else:
            self._list.append([word, [token]])

    def take_events(self) -> list[list[Any]]:
        """Returns the events and forgets them."""
        events, self._list = self._list, []
        return events


def variables_to_wire(values: Mapping[bytes, bytes]) -> dict[str, str]:
    """Returns variables in the form of an event: HTTP clients get JSON, which has no bytes."""
    return {name: base64.b64encode(value).decode() for name, value in by_name(values).items()}


def variables_of(wire: Mapping[str, str]) -> dict[str, bytes]:
    """Returns the variables of an event."""
    return {name: base64.b64decode(value) for name, value in wire.items()}


def error_to_wire(error: BaseException) -> list[Any]:
    """Returns an error in the form of an event."""
    return (error if isinstance(error, AiciError) else AiciError(repr(error))).to_wire()


def events_of(output: Any) -> list[list[Any]]:
    """Returns the events of a `RequestOutput`."""
    parameters = output.kv_transfer_params
    events: list[list[Any]] = parameters.get(KEY, []) if parameters else []
    return events


#: beginnings of failure reasons: errors of the controller or its argument, and errors of the runtime
OF_CONTROLLER, OF_RUNTIME = "controller ", "controllers "


def failure_reason(controller: str, error: BaseException) -> str:
    """Returns the reason of a failed request, for `stop_reason`."""
    if isinstance(error, AiciError) and not isinstance(error, RuntimeFailure):
        return f"{OF_CONTROLLER}{controller}: {error}"
    return f"{OF_RUNTIME}cannot be run at present; try again later, or notify the administrator: {error}"
