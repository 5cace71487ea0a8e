"""Converts arguments, prompts and variables between Python and the wire."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aicirt.contract.errors import ArgumentError, VocabularyError

#: the argument of a controller: a text or bytes, or a dict or list, which the controller gets as JSON
Argument = str | bytes | Mapping[str, Any] | list[Any]


def argument_text(arg: Argument) -> str | bytes:
    """Returns the argument as text or bytes: a dict or list as JSON.

    Raises ArgumentError for other types, and for values that JSON does not have.
    """
    if isinstance(arg, (str, bytes)):
        return arg
    if not isinstance(arg, (Mapping, list)):
        raise ArgumentError(
            f"the argument must be a text, bytes, or a dict or list for JSON, not {type(arg).__name__}"
        )
    try:
        value = dict(arg) if isinstance(arg, Mapping) else arg
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(f"the argument cannot be written as JSON: {error}") from None


def argument_bytes(arg: Argument) -> bytes:
    """Returns the argument as bytes. Raises ArgumentError, also for text that UTF-8 cannot encode."""
    text = argument_text(arg)
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise ArgumentError(f"the argument cannot be encoded as UTF-8: {error}") from None


def prompt_bytes(prompt: Sequence[int], vocab_size: int) -> bytes:
    """Returns the tokens as little-endian uint32. Raises VocabularyError if one is not a token."""
    try:
        tokens = np.asarray(prompt, dtype=np.int64)
    except (TypeError, ValueError, OverflowError) as error:
        raise VocabularyError(f"the prompt must be a list of token numbers: {error}") from None
    if tokens.size and not 0 <= tokens.min() <= tokens.max() < vocab_size:
        raise VocabularyError(f"the prompt has a token outside 0 to {vocab_size - 1}")
    return tokens.astype("<u4").tobytes()


def variable_name(name: bytes) -> str:
    """Returns a variable's name as text; bytes that are not UTF-8 become \\xNN."""
    return name.decode("utf-8", "backslashreplace")


def by_name(values: Mapping[bytes, bytes]) -> dict[str, bytes]:
    """Returns variables by their names as text."""
    return {variable_name(name): value for name, value in values.items()}


def value_json(value: bytes) -> Any:
    """Returns the value of a variable, or of an argument, for JSON: text, or base64 if it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def value_bytes(value: Any) -> bytes:
    """Returns the value that `value_json` has written."""
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])
