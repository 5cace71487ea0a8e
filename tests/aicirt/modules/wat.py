"""Modules that are quick to compile."""

from __future__ import annotations

from wasmtime import wat2wasm


def small_module(number: int = 0) -> bytes:
    """Returns the smallest controller; each number gives a different module."""
    return bytes(
        wat2wasm(
            f"""(module (import "aici" "stop" (func)) (memory (export "memory") 1)
            (func (export "aici_abi_v1")) (func (export "aici_arg") (result i32) (i32.const {number}))
            (func (export "aici_mid_process") (result i32) (i32.const 1)))"""
        )
    )
