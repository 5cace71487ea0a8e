"""Hostile modules for attacks of one user on others."""

from __future__ import annotations

from wasmtime import wat2wasm

from lab.attacks.modules import doubling, with_name
from lab.campaigns.odd_modules import controller, mid


def exploding_name(levels: int = 4000) -> bytes:
    """Returns a module that traps in a function whose demangled C++ name doubles with each level."""
    functions_before = 2  # the marker and aici_arg
    wasm = bytes(wat2wasm(controller(mid=mid("unreachable"))))
    return with_name(wasm, functions_before, doubling(levels).encode())


def long_exports(number: int, count: int = 4900, length: int = 3000) -> bytes:
    """Returns a module whose names of exports fill an upload, a different one for each number."""
    more = "".join(f'(export "{number}.{place:0{length}d}" (func 0))' for place in range(count))
    return bytes(wat2wasm(controller(more)))
