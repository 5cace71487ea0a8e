"""Arguments, prompts, variables and capabilities, between Python and the wire."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from aicirt.contract.abi import (
    CAP_BACKTRACK,
    CAP_DENSE,
    CAP_DRAFTS,
    CAP_FF_TOKENS,
    CAP_FOLLOW,
    CAP_FORK,
    CAP_HOLD_END,
    CAP_LOGPROBS,
    CAP_LOOK,
    CAP_SUSPEND,
    CAP_TOP_LOGPROBS,
    LOOK_LOGITS,
    LOOK_NEVER,
)
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


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of an engine. Controllers query them with `aici_capability`.

    The runtime refuses a verb that the engine does not support.
    """

    fork: bool = True
    backtrack: bool = True
    ff_tokens: bool = True
    suspend: bool = True
    #: the engine reports log-probability and allowed mass
    logprobs: bool = True
    #: the engine supports SPARSE and DENSE rows
    dense: bool = True
    #: the largest `Row.top_logprobs` that the engine supports
    top_logprobs: int = 64
    #: an end-of-sequence token does not end the sequence where the controller holds it (AICI_MID_HOLD_END)
    hold_end: bool = True
    #: a controller may see a token's distribution before it decides (LOOK): never, lists of the most likely
    #: tokens, or also all logits
    look: int = LOOK_LOGITS
    #: a sequence may follow another one, and take part in sampling its tokens (FOLLOW)
    follow: bool = True
    #: the most tokens that a controller may expect after a sampled one (`DraftedSample`): 64 count
    drafts: int = 15

    def to_wire(self) -> list[list[int]]:
        """Returns [[number in aici.h, value], ...], which the caller must not change."""
        return _wire(self)

    @classmethod
    def from_wire(cls, pairs: list[list[int]]) -> Capabilities:
        """Rebuilds capabilities from `to_wire`."""
        found: dict[str, Any] = {_NUMBERS[number]: value for number, value in pairs}
        numbers = ("top_logprobs", "look", "drafts")
        return cls(**{name: value if name in numbers else bool(value) for name, value in found.items()})


#: the fields by their numbers in aici.h; the runtime adds three more
_NUMBERS = {
    CAP_FORK: "fork",
    CAP_BACKTRACK: "backtrack",
    CAP_FF_TOKENS: "ff_tokens",
    CAP_SUSPEND: "suspend",
    CAP_LOGPROBS: "logprobs",
    CAP_TOP_LOGPROBS: "top_logprobs",
    CAP_DENSE: "dense",
    CAP_HOLD_END: "hold_end",
    CAP_LOOK: "look",
    CAP_FOLLOW: "follow",
    CAP_DRAFTS: "drafts",
}


@lru_cache(maxsize=64)
def _wire(capabilities: Capabilities) -> list[list[int]]:
    return [[number, int(getattr(capabilities, name))] for number, name in _NUMBERS.items()]


#: for an engine with its own generation loop
ALL = Capabilities()
#: for an engine that can only mask, such as a logits processor
MASK_ONLY = Capabilities(
    fork=False,
    backtrack=False,
    ff_tokens=False,
    suspend=False,
    logprobs=False,
    dense=True,
    top_logprobs=0,
    hold_end=False,
    look=LOOK_NEVER,
    follow=False,
    drafts=0,
)
