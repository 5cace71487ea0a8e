"""Checks messages from workers: a guest may have broken out of its sandbox, so none is trusted."""

from __future__ import annotations

import struct
from collections.abc import Container
from typing import Any

from aicirt.contract.errors import AiciError, ProtocolError
from aicirt.contract.messages import CLONED, MID, NOTICE, OPERATION, PRE, STARTED, SUBJECT, decode

#: the errors that reading an invalid message may raise
NONSENSE = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, struct.error)
#: the least number of fields of each kind of message; more may follow
_FIELDS = {STARTED: 4, PRE: 3, MID: 4, CLONED: 3, NOTICE: 3}
#: children of one fork; the default of `max_forks` allows 16
MAX_CHILDREN = 1 << 12
#: top_k of a row: engines answer at most 64, and sort the probabilities of so many tokens for each row
MAX_TOP_K = 1 << 12


def read_message(data: bytes) -> list[Any]:
    """Decodes a message; checks its number of fields, and that the second is an int. Raises ProtocolError."""
    message = decode(data)
    kind = message[OPERATION]
    least = _FIELDS.get(kind) if type(kind) is int else None
    if least is None:
        raise ProtocolError("a message of unknown kind")
    if len(message) < least or type(message[SUBJECT]) is not int:
        raise ProtocolError(f"a message of kind {kind} without its fields")
    return message


def check_children(payload: Any, link: int, live: Container[int]) -> list[int]:
    """Returns the numbers of a fork's children, new sequences of this link. Raises ProtocolError."""
    if (
        type(payload) is not list
        or not 0 < len(payload) <= MAX_CHILDREN
        or not _are_ints(payload)
        or len(set(payload)) < len(payload)
    ):
        raise ProtocolError("a fork whose children are no list of numbers")
    for child in payload:
        if child >> 24 != 1 << 7 | link or child in live:
            raise ProtocolError(f"a fork with child {child}, which is no new sequence of this worker")
    return payload


def check_splice(backtrack: Any, tokens: Any, vocab_size: int) -> list[int]:
    """Returns the tokens that a splice appends. Raises ProtocolError."""
    if type(backtrack) is not int or not 0 <= backtrack < 1 << 31:
        raise ProtocolError("a splice takes back no number of tokens")
    if type(tokens) is not list or not _are_ints(tokens):
        raise ProtocolError("a splice appends what are no tokens")
    if tokens and not (min(tokens) >= 0 and max(tokens) < vocab_size):
        raise ProtocolError(f"a splice appends a token that is not below {vocab_size}")
    return tokens


def check_sampling(temperature: Any, top_k: Any) -> None:
    """Checks temperature and top_k of a row. Raises ProtocolError."""
    if temperature is not None and not (type(temperature) in (int, float) and 0 <= temperature < 1e30):
        raise ProtocolError("a row with an impossible temperature")
    if type(top_k) is not int or not 0 <= top_k <= MAX_TOP_K:
        raise ProtocolError("a row with an impossible top_k")


def read_variables(told: Any) -> dict[bytes, bytes]:
    """Returns the last values of variables by name. Raises ProtocolError."""
    found = {name: value for name, _, value in told}
    if not all(type(name) is type(value) is bytes for name, value in found.items()):
        raise ProtocolError("variables that are no bytes")
    return found


def nonsense(sender: str, error: Exception) -> str:
    """Returns the error message for a worker's invalid message."""
    what = error.message if isinstance(error, AiciError) else repr(error)[:200]
    return f"{sender} has sent nonsense, and is not heard any more: {what}"


def _are_ints(values: list[Any]) -> bool:
    return set(map(type, values)) <= {int}
