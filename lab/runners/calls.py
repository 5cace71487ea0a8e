"""The imports of module "aici" for `host.Guest`, which owns the instances that call them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from aicirt.contract.abi import ANY_VERSION, NO_TOKENS, TOKENIZED, VALUE
from aicirt.contract.errors import ControllerFailed, VocabularyError
from aicirt.wasm import GuestExit, Instance

if TYPE_CHECKING:
    from lab.runners.host import Guest


def _read(guest: Instance, source: int, offset: int, dst: int, length: int) -> int:
    data: bytes = guest.owner.sources[source]
    guest.write_memory(dst, data[offset : offset + length])
    return len(data)


def _vocabulary(guest: Instance) -> int:
    owner: Guest = guest.owner
    if not owner.image_address:
        owner.image_address = guest.grow(-(-len(owner.vocab.image) // 65536))
        guest.write_memory(owner.image_address, owner.vocab.image)
    return owner.image_address


def _tokenize(guest: Instance, src: int, length: int) -> int:
    owner: Guest = guest.owner
    owner.tokenized.append(guest.read(src, length))
    try:
        tokens = owner.vocab.tokenize(owner.tokenized[-1])
    except VocabularyError:
        return NO_TOKENS
    owner.sources[TOKENIZED] = np.array(tokens, "<u4").tobytes()
    return len(tokens)


def _var_get(guest: Instance, name: int, name_length: int, length_out: int) -> int:
    owner: Guest = guest.owner
    version, owner.sources[VALUE] = owner.variables.get(guest.read(name, name_length), (0, b""))
    if length_out:
        guest.write_memory(length_out, struct.pack("<I", len(owner.sources[VALUE])))
    return version


def _var_write(guest: Instance, *args: int) -> int:
    name, name_length, value, value_length, op, when = args
    key, data = guest.read(name, name_length), guest.read(value, value_length)
    version, old = guest.owner.variables.get(key, (0, b""))
    if when not in (ANY_VERSION, version):
        return 0
    guest.owner.variables[key] = (version + 1, old + data if op else data)
    return int(version) + 1


def _no_call(_guest: Instance, *_: int) -> int:
    raise ControllerFailed("nobody answers calls here")


def _capability(guest: Instance, number: int) -> int:
    return int(guest.owner.capabilities.get(number, 0))


def _stop(_guest: Instance) -> None:
    raise GuestExit("aici_stop")


def _fail(guest: Instance, message: int, length: int) -> None:
    raise ControllerFailed(guest.read(message, length).decode("utf-8", "replace"))


#: module "aici", as aici.h declares it
CALLS: dict[str, Callable[..., Any]] = {
    "read": _read,
    "vocabulary": _vocabulary,
    "tokenize": _tokenize,
    "var_get": _var_get,
    "var_write": _var_write,
    "call": _no_call,
    "capability": _capability,
    "stop": _stop,
    "fail": _fail,
}
