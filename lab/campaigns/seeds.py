"""The modules that the campaign `modules` damages: real controllers, and small ones for every feature."""

from __future__ import annotations

import tempfile
from pathlib import Path

from wasmtime import wat2wasm

from lab import ROOT
from lab.campaigns.odd_modules import controller, mid
from pyaici.toolchain import build_controller

#: weights; large modules have low ones, since they take long to compile
_CONTROLLERS = {"yesno": 6, "yesno_zig": 4, "uppercase": 2, "choice": 1, "regex": 1}
_GUESTS = {"witness": 2, "puppet": 4}
_OF_SMALL = 8
_SMALL = (
    controller(),
    controller(
        """(func $s (global.set $g (i32.const 5))) (start $s) (global $g (mut i32) (i32.const 1))
        (global (mut i64) (i64.const 2)) (global (mut f32) (f32.const 3)) (global (mut f64) (f64.const 4))
        (global (mut v128) (v128.const i64x2 5 6)) (global f64 (f64.const nan))"""
    ),
    controller(
        """(table 4 8 funcref) (table 2 externref) (elem (i32.const 1) $f $h) (elem declare func $f)
        (func $f (result i32) (i32.const 1)) (func $h (param i64 f32) (result f64) (f64.const 2))
        (func (export "aici_init") (param i32) (result i32) (drop (call_indirect (result i32) (i32.const 1)))
          (i32.const 0)) (func (export "_initialize") (drop (call $f)))"""
    ),
    controller(
        """(data $d "passive data") (func (export "aici_init_prompt") (param i32) (result i32)
          (memory.init $d (i32.const 4096) (i32.const 0) (i32.const 7)) (data.drop $d)
          (memory.copy (i32.const 5000) (i32.const 4096) (i32.const 300))
          (memory.fill (i32.const 6000) (i32.const 1) (i32.const 1000)) (i32.const 0))
        (func (export "aici_warm") (result i32)
          (memory.fill (i32.const 7000) (i32.const 1) (i32.const 9000)) (i32.const 0))"""
    ),
    controller(
        """(tag $t (param i32)) (func $r (param i32) (result i32) (if (result i32) (local.get 0)
          (then (call $r (i32.sub (local.get 0) (i32.const 1)))) (else (throw $t (i32.const 9)))))""",
        mid=mid(
            """(drop (block $h (result i32) (try_table (result i32) (catch $t $h) (call $r (i32.const 5)))))
            (drop (memory.grow (i32.const 1)))"""
        ),
    ),
    controller(
        """(func (export "aici_post_process") (result i32) (drop (call $read (i32.const 2) (i32.const 0)
          (i32.const 8192) (i32.const 64))) (i32.const 2048))
        (func (export "aici_pre_process") (result i32) (drop (call $write (i32.const 1) (i32.const 1024)
          (i32.const 1) (i32.const 8192))) (i32.const 2048))""",
        imports="""(import "aici" "read" (func $read (param i32 i32 i32 i32) (result i32)))
        (import "aici" "tokenize" (func (param i32 i32) (result i32))) (import "aici" "stop" (func))
        (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))
        (import "aici" "vocabulary" (func (result i32)))""",
    ),
    controller(
        """(func (param v128) (result v128) (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 31
          (local.get 0) (i32x4.add (local.get 0) (v128.const i32x4 1 2 3 4))))
        (func (param i32) (result i32 i64) (block $a (block $b (br_table $a $b $a (local.get 0))))
          (local.get 0) (i64.extend_i32_u (select (result i32) (i32.const 1) (local.get 0) (local.get 0))))"""
    ),
)


def seed_modules() -> list[bytes]:
    """Returns all modules, each repeated by its weight."""
    small = [bytes(wat2wasm(text)) for text in _SMALL]
    found = [wasm for wasm in small for _ in range(_OF_SMALL)]
    with tempfile.TemporaryDirectory() as folder:
        for name, often in _CONTROLLERS.items():
            found += [_built(ROOT / "controllers" / name, Path(folder))] * often
        for name, often in _GUESTS.items():
            found += [_built(ROOT / "lab" / "guests" / f"{name}.c", Path(folder))] * often
    return found


def _built(source: Path, folder: Path) -> bytes:
    return build_controller(source, folder / f"{source.stem}.wasm").path.read_bytes()
