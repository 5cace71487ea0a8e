"""Events of a controlled request for its client, beside its tokens, if it asks for `aici_events`.

It is in `RequestOutput.kv_transfer_params`: a dictionary that vLLM carries from its engine to its clients for
connectors of caches; requests with controllers have none. Its key `aici` holds a list of what happened since
the last output of the same sequence, oldest first, each a list of a word and what belongs to it:

==============================  ===========================================================================
``["sampled", tokens]``         token ids that were sampled
``["forced", tokens]``          token ids that the controller appended
``["back", count]``             so many tokens were taken back
``["forked", indices]``         sequences of the request that begin as copies of this one; their outputs begin
                                with the tokens that this one has made, of which no event tells
``["suspended"]``               it sits out steps; the next event ends that
``["log", text]``               the controller printed something
``["variables", values]``       controllers of the request have written these variables, which all sequences
                                of it share: base64 texts by name; names as in `VariablesChanged`
``["error", error]``            why it failed: code, message and details, as `AiciError.to_wire` writes them
==============================  ===========================================================================
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from aicirt.contract.errors import AiciError
from pyaici.client.arguments import by_name

#: the key
KEY = "aici"


class Events:
    """Events of a sequence since they were last sent."""

    __slots__ = ("_list",)

    def __init__(self) -> None:
        self._list: list[list[Any]] = []

    def add(self, word: str, *what: Any) -> None:
        """Notes something; empty lists and texts, and a count of 0, are nothing."""
        if not what or all(what):
            self._list.append([word, *what])

    def tokens(self, word: str, tokens: Sequence[int]) -> None:
        """Notes tokens."""
        for token in tokens:
            self.token(word, token)

    def token(self, word: str, token: int) -> None:
        """Notes a token; those that come together are told together."""
        if self._list and self._list[-1][0] == word:
            self._list[-1][1].append(token)
        else:
            self._list.append([word, [token]])

    def take(self) -> list[list[Any]]:
        """All that has not been told."""
        told, self._list = self._list, []
        return told


def variables_to_wire(values: Mapping[bytes, bytes]) -> dict[str, str]:
    """Returns variables for an event: a client over HTTP gets JSON, which has no bytes."""
    return {name: base64.b64encode(value).decode() for name, value in by_name(values).items()}


def variables_of(wire: Mapping[str, str]) -> dict[str, bytes]:
    """The variables that an event tells of."""
    return {name: base64.b64decode(value) for name, value in wire.items()}


def to_wire(error: BaseException) -> list[Any]:
    """Returns an error for an event."""
    return (error if isinstance(error, AiciError) else AiciError(repr(error))).to_wire()


def events_of(output: Any) -> list[list[Any]]:
    """The events that came with a `RequestOutput`."""
    parameters = output.kv_transfer_params
    told: list[list[Any]] = parameters.get(KEY, []) if parameters else []
    return told


def keep_all(output_class: type) -> None:
    """Has `add` of vLLM's RequestOutput keep the events of both outputs, where it makes one of two."""
    add = output_class.add  # type: ignore[attr-defined]

    def add_both(self: Any, next_output: Any, *args: Any, **keywords: Any) -> None:
        earlier = events_of(self)
        add(self, next_output, *args, **keywords)
        if earlier:
            self.kv_transfer_params = {**(self.kv_transfer_params or {}), KEY: [*earlier, *events_of(self)]}

    output_class.add = add_both  # type: ignore[attr-defined]
