"""Converts arguments, prompts and variables between Python and the wire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aicirt.contract.errors import ArgumentError, VocabularyError


def argument_bytes(arg: str | bytes) -> bytes:
    """Returns the argument as bytes. Raises ArgumentError for text that UTF-8 cannot encode."""
    try:
        return arg.encode() if isinstance(arg, str) else bytes(arg)
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
