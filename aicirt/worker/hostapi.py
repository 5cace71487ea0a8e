"""The imports of module "aici", as aici.h declares them.

Every function gets the calling instance and 32-bit unsigned integers. Addresses are
checked by `Instance.read` and `Instance.write`, which raise ResultError; a raised
AiciError ends the sequence with that error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from aicirt.errors import ControllerFailed, ResultError, VocabularyError
from aicirt.wasm.host import GuestExit, HostCallable
from aicirt.worker.context import TOKENIZED, VALUE, GuestContext

if TYPE_CHECKING:
    from aicirt.wasm.instance import Instance

_ANY_VERSION = 0xFFFFFFFF
_NO_TOKENS = 0xFFFFFFFF
_SET, _APPEND = 0, 1


def _context(instance: Instance) -> GuestContext:
    return cast(GuestContext, instance.owner)


def read(instance: Instance, source: int, offset: int, dst: int, length: int) -> int:
    """Copies a part of a source to the guest; returns the source's whole size in bytes."""
    data = _context(instance).source(source)
    if offset < len(data) and length:
        instance.write(dst, data[offset : offset + length])
    return len(data)


def vocabulary(instance: Instance) -> int:
    """Maps the vocabulary image once; returns its address."""
    return _context(instance).vocabulary.map_into(instance)


def tokenize(instance: Instance, src: int, length: int) -> int:
    """Tokenizes bytes; the tokens are the TOKENIZED source; returns their number, or NO_TOKENS."""
    context = _context(instance)
    if length > context.limits.max_tokenize_bytes:
        raise ResultError(
            f"aici_tokenize: {length} bytes are over the limit of {context.limits.max_tokenize_bytes}"
        )
    try:
        tokens = context.vocabulary.tokenize(instance.read(src, length))
    except VocabularyError:
        return _NO_TOKENS
    context.sources[TOKENIZED] = tokens
    return len(tokens) // 4


def var_get(instance: Instance, name: int, name_len: int, length_out: int) -> int:
    """Makes a variable's value the VALUE source; returns its version, 0 if it is missing."""
    context = _context(instance)
    variables = context.variables
    version, value = variables.get(_name(instance, name, name_len)) if variables is not None else (0, b"")
    context.sources[VALUE] = value
    if length_out:
        instance.write(length_out, len(value).to_bytes(4, "little"))
    return version


def var_write(
    instance: Instance, name: int, name_len: int, value: int, value_len: int, op: int, when_version: int
) -> int:
    """Sets or appends; returns the new version, 0 if `when_version` did not fit."""
    context = _context(instance)
    variables = context.variables
    if variables is None:
        raise ControllerFailed(
            "aici_init cannot write variables, as its result serves many requests: use aici_init_prompt"
        )
    if value_len > context.limits.max_variable_bytes:
        raise ResultError(f"aici_var_write: a value of {value_len} bytes is over the limit")
    key = _name(instance, name, name_len)
    data = instance.read(value, value_len)
    condition = None if when_version == _ANY_VERSION else when_version
    if op == _SET:
        return variables.set(key, data, condition)
    if op == _APPEND:
        return variables.append(key, data, condition)
    raise ResultError(f"aici_var_write: there is no operation {op}")


def capability(instance: Instance, number: int) -> int:
    """The value of a capability, 0 if it is not known."""
    return _context(instance).capabilities.get(number, 0)


def stop(instance: Instance) -> None:
    """Ends the sequence without an error."""
    raise GuestExit("aici_stop")


def fail(instance: Instance, message: int, length: int) -> None:
    """Ends the sequence with the guest's message."""
    context = _context(instance)
    text = instance.read(message, min(length, context.limits.log_bytes)).decode("utf-8", "replace")
    raise ControllerFailed(text or "the controller called aici_fail without a message")


def _name(instance: Instance, name: int, length: int) -> bytes:
    limit = _context(instance).limits.max_variable_name
    if length > limit:
        raise ResultError(f"a variable name of {length} bytes is over the limit of {limit}")
    return instance.read(name, length)


#: the imports by name; the tokenizer is the one that may take long
CALLS: dict[str, HostCallable] = {
    "read": read,
    "vocabulary": vocabulary,
    "tokenize": tokenize,
    "var_get": var_get,
    "var_write": var_write,
    "capability": capability,
    "stop": stop,
    "fail": fail,
}
TIMED = ("tokenize",)
