"""Modules that attack the runtime: endless functions, long straight-line code, exponential names."""

from __future__ import annotations

from wasmtime import wat2wasm

from aicirt.wasm.module.reader import leb
from aicirt.wasm.module.rewrite import NAMES

#: first byte of the argument -> the function that then never returns
LOOPS = {
    "s": "__aici_rt_start",
    "i": "_initialize",
    "a": "aici_arg",
    "n": "aici_init",
    "p": "aici_init_prompt",
}
_SLOW = f"""(module (import "aici" "read" (func $read (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1) (func (export "aici_abi_v1"))
  (data (i32.const 16) "\\a8\\00\\00\\00")
  (func $at (param $where i32)
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1024) (i32.const 1)))
    (if (i32.eq (local.get $where) (i32.load8_u (i32.const 1024))) (then (loop $l (br $l)))))
  (func $start (call $at (i32.const {ord("s")})))
  (start $start)
  (func (export "_initialize") (call $at (i32.const {ord("i")})))
  (func (export "aici_arg") (result i32) (call $at (i32.const {ord("a")})) (i32.const 16))
  (func (export "aici_init") (param i32) (result i32) (call $at (i32.const {ord("n")})) (i32.const 0))
  (func (export "aici_init_prompt") (param i32) (result i32) (call $at (i32.const {ord("p")})) (i32.const 0))
  (func (export "aici_mid_process") (result i32) unreachable))"""
#: links each 64 bytes of its memory to others and follows the links one by one; the order defeats the caches
_STRAIGHT = r"""(module (memory (export "memory") 1020)
  (data (i32.const 64) "\a8")
  (data (i32.const 512) "\0c\00\00\00\01\00\00\00\01") (data (i32.const 528) "\30\00\00\00\04")
  (global $at (mut i32) (i32.const 65536))
  (func (export "aici_abi_v1"))
  (func (export "aici_arg") (result i32) (i32.const 64))
  (func (export "aici_init") (param i32) (result i32) (local $i i32) (local $next i32)
    (loop $l
      (local.set $next (i32.rem_u (i32.add (i32.mul (local.get $i) (i32.const 4001)) (i32.const 70001))
        (i32.const 1000003)))
      (i32.store (i32.add (i32.const 65536) (i32.shl (local.get $i) (i32.const 6)))
        (i32.add (i32.const 65536) (i32.shl (local.get $next) (i32.const 6))))
      (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000003))))
    (i32.const 0))
  (func (export "aici_pre_process") (result i32) {LOADS} (i32.const 512))
  (func (export "aici_mid_process") (result i32) (i32.const 528)))"""
#: base-36 digits of substitutions in mangled names
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def slow_module() -> bytes:
    """Returns a module that loops forever in the function that the first byte of its argument selects."""
    return bytes(wat2wasm(_SLOW))


def straight_module(loads: int = 400_000) -> bytes:
    """Returns a module whose `aici_pre_process` is `loads` loads in a row; 400 000 take up to 100 ms."""
    load = "(global.set $at (i32.load (global.get $at)))"
    return bytes(wat2wasm(_STRAIGHT.replace("{LOADS}", load * loads)))


def with_name(wasm: bytes, index: int, name: bytes) -> bytes:
    """Returns the module with a name section that names one function."""
    entries = leb(1) + leb(index) + leb(len(name)) + name
    content = NAMES + b"\1" + leb(len(entries)) + entries
    return wasm + b"\0" + leb(len(content)) + content


def doubling(levels: int) -> str:
    """Returns a mangled name of C++ whose demangled parameters double in length with each level."""
    text, last, following = "_Z1f1A", 0, 1
    for level in range(levels):
        if level == 0:
            text += f"1PI{_reference(last) * 2}E"
            last, following = 2, 3
        else:
            text += f"{_reference(1)}I{_reference(last) * 2}E"
            last, following = following, following + 1
    return text


def _reference(number: int) -> str:
    if number == 0:
        return "S_"
    number, digits = number - 1, ""
    while not digits or number:
        digits, number = _DIGITS[number % 36] + digits, number // 36
    return f"S{digits}_"
