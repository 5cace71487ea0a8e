"""Controllers written as WAT, and host functions for them."""

from __future__ import annotations

from collections.abc import Callable

from wasmtime import wat2wasm

from aicirt.contract.errors import ControllerFailed
from aicirt.wasm import GuestExit, Instance

#: what every controller must export, except for `aici_mid_process`
REQUIRED = """
  (memory (export "memory") 1)
  (func (export "aici_abi_v1"))
  (func (export "aici_arg") (result i32) (i32.const 16))
"""
MID = '(func (export "aici_mid_process") (result i32) (i32.const 0))'

IMPORTS = """
  (import "aici" "read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "aici" "vocabulary" (func $vocabulary (result i32)))
  (import "aici" "tokenize" (func $tokenize (param i32 i32) (result i32)))
  (import "aici" "stop" (func $stop))
  (import "aici" "fail" (func $fail (param i32 i32)))
"""


def controller(body: str = "", *, mid: str = MID, imports: str = "", required: str = REQUIRED) -> bytes:
    """Returns a controller as WebAssembly: imports, then the required exports, then `body`."""
    return bytes(wat2wasm(f"(module {imports} {required} {mid} {body})"))


def _stop(_guest: Instance) -> None:
    raise GuestExit("stop")


def _fail(guest: Instance, at: int, length: int) -> None:
    raise ControllerFailed(guest.read(at, length).decode())


def _count(_guest: Instance, *args: int) -> int:
    return sum(args)


CALLS: dict[str, Callable[..., int | None]] = {
    "read": _count,
    "vocabulary": lambda _guest: 0,
    "tokenize": lambda _guest, _at, _length: 1 // 0,
    "var_get": _count,
    "var_write": _count,
    "call": _count,
    "capability": _count,
    "stop": _stop,
    "fail": _fail,
}
