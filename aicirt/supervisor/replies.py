"""Checks the answers of workers and builders, which code that has broken out of a guest may have written."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from aicirt.contract.errors import AiciError, ProtocolError, worker_error_from_wire
from aicirt.settings import MAX_FOUND_BYTES, MAX_NEWS, MAX_PROFILES

_Check = Callable[[Any], bool]
#: calls that cannot fail
_SAFE = ("ping", "found", "calls", "stop")
#: calls whose answer may come with a file: a snapshot
_WITH_FILE = ("build", "warm")
_NAME = re.compile("[a-z_]{1,64}")
#: names of counters or layers, and clients, in an answer; there are some dozens
_MAX_NAMES = 1 << 12
#: characters of an offer's token, or of a call's name, which may have any
_MAX_TEXT = 256
#: bytes of memory in a run of pages, at least, and the numbers that describe it
_RUN_BYTES, _RUN_NUMBERS = 4096, 2


def check_value(call: str, value: Any, files: Any) -> None:
    """Raises ProtocolError unless `value`, which comes with so many files, can be the answer to the call."""
    if type(files) is not int or not 0 <= files <= (call in _WITH_FILE):
        raise ProtocolError(f"an answer to {call!r} with {files!r} files")
    if not _VALUES.get(call, _is_none)(value):
        raise ProtocolError(f"not an answer to {call!r}")


def check_error(call: str, error: Any) -> AiciError:
    """Returns the error that is the answer to a call. Raises ProtocolError if it cannot be."""
    if call in _SAFE:
        raise ProtocolError(f"the call {call!r} has no errors")
    return worker_error_from_wire(error)


def _is_none(value: Any) -> bool:
    return value is None


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _amount(value: Any) -> bool:
    return type(value) is float and math.isfinite(value) and value >= 0


def _bool(value: Any) -> bool:
    return type(value) is bool


def _bytes(value: Any) -> bool:
    return type(value) is bytes


def _name(value: Any) -> bool:
    return type(value) is str and _NAME.fullmatch(value) is not None


def _text(value: Any) -> bool:
    return type(value) is str and len(value) <= _MAX_TEXT


def _layer(value: Any) -> bool:
    return _count(value) or _bool(value) or (type(value) is list and all(map(_name, value)))


def _table(key: _Check, value: _Check) -> _Check:
    def check(found: Any) -> bool:
        return (
            type(found) is dict
            and len(found) <= _MAX_NAMES
            and all(key(name) and value(number) for name, number in found.items())
        )

    return check


def _fields(**checks: _Check) -> _Check:
    def check(found: Any) -> bool:
        return (
            type(found) is dict
            and found.keys() == checks.keys()
            and all(check(found[name]) for name, check in checks.items())
        )

    return check


def _items(*checks: _Check) -> _Check:
    def check(found: Any) -> bool:
        return (
            type(found) is list
            and len(found) == len(checks)
            and all(check(item) for check, item in zip(checks, found, strict=True))
        )

    return check


def _list(item: _Check, most: float = math.inf) -> _Check:
    def check(found: Any) -> bool:
        return type(found) is list and len(found) <= most and all(map(item, found))

    return check


def _found(value: Any) -> bool:
    return _bytes(value) and 0 < len(value) <= MAX_FOUND_BYTES


#: see `aicirt.wasm.snapshot.to_wire`. Workers check it against the module
_SNAPSHOT = _items(_count, _bytes, _count, _list(_count), _list(_items(_count, _count), 1))
_DESCRIPTION = {"snapshot": _SNAPSHOT, "nbytes": _count, "address": _count, "log": _bytes}


def _described(check: _Check) -> _Check:
    """The description may be no longer than its bytes allow, since only these count for a limit."""

    def also_short(value: Any) -> bool:
        return check(value) and len(value["snapshot"][3]) * _RUN_BYTES <= _RUN_NUMBERS * value["nbytes"]

    return also_short


def _error(value: Any) -> bool:
    worker_error_from_wire(value)
    return True


_built = _fields(cpu_s=_amount, built=_described(_fields(**_DESCRIPTION)))
_refused = _fields(cpu_s=_amount, error=_error)

_VALUES: dict[str, _Check] = {
    "ping": _fields(
        sequences=_count,
        clients=_table(_count, _count),
        busy=_amount,
        work_s=_amount,
        asked=_count,
        counters=_table(_name, _count),
        steps=_count,
        snapshot_bytes=_count,
        templates_given_up=_count,
        built=_count,
        sandbox=_table(_name, _layer),
        memory=_fields(bytes=_count, limit=_count, owner_bytes=_count, owner_limit=_count, ended=_count),
        found=_count,
    ),
    "found": _list(_items(_count, _found), MAX_PROFILES),
    "calls": _list(_items(_count, _count, _text, _text, _bytes), MAX_NEWS),
    "build": lambda value: _built(value) or _refused(value),
    "warm": _described(_fields(**_DESCRIPTION, more=_bool)),
    "adopt": _count,
}
