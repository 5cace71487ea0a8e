from __future__ import annotations

import pytest
from wasmtime import wat2wasm

from aicirt.contract.errors import ModuleError
from aicirt.wasm.module.checkpoints import BULK, MEMORY_GROW, TABLE_MUTATORS, Found, scan
from aicirt.wasm.module.reader import inspect

#: one of each shape of instruction, with immediates that contain the bytes of table.set and memory.grow
INSTRUCTIONS = """
  (block $a (block $b (block $c (br_table $a $b $c $a (i32.const 38)))))
  (block (result i32) (i32.const 0x26)) drop
  (loop (param) (nop))
  (i32.const 1) (if (then (nop)) (else (nop)))
  (drop (select (result funcref) (ref.null func) (ref.func $f) (i32.const 0)))
  (drop (select (i32.const 64) (i32.const -64) (i32.const 0)))
  (drop (table.get $t (i32.const 0))) (drop (table.size $t))
  (drop (call_indirect $t (type $unary) (i32.const 0x40) (i32.const 0)))
  (drop (i64.load32_u offset=9728 align=4 (i32.const 9766)))
  (i64.store8 offset=64 (i32.const 0) (i64.const 38))
  (drop (f32.const 38)) (drop (f64.const 1e300)) (drop (i64.const -0x4026402640264026))
  (drop (memory.size)) (drop (i32.trunc_sat_f64_s (f64.const 1))) (drop (i64.extend8_s (i64.const 1)))
  (data.drop $passive) (elem.drop $e)
  (drop (v128.const i8x16 38 64 38 64 38 64 38 64 38 64 38 64 38 64 38 64))
  (drop (i8x16.shuffle 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 31 (local.get $v) (local.get $v)))
  (drop (i32x4.extract_lane 3 (local.get $v)))
  (drop (v128.load16_lane offset=38 7 (i32.const 0) (local.get $v)))
  (drop (v128.load32_zero offset=64 (i32.const 0))) (v128.store offset=38 (i32.const 0) (local.get $v))
  (drop (i32x4.dot_i16x8_s (local.get $v) (local.get $v))) (drop (i8x16.popcnt (local.get $v)))
  (drop (f32x4.relaxed_madd (local.get $v) (local.get $v) (local.get $v)))
  (block $h (try_table (catch $tag $h) (catch_all $h) (nop)))
  (block $r (result exnref) (try_table (catch_all_ref $r) (nop)) (ref.null exn)) drop
  (block $z (param) (br_if $z (i32.const 1))) (drop (ref.is_null (ref.null extern)))
  (drop (call_ref $unary (i32.const 1) (ref.func $f)))
  (block $n (drop (br_on_null $n (ref.null $unary)))) (drop (ref.as_non_null (ref.func $f)))
"""
MODULE = """(module (type $unary (func (param i32) (result i32))) (memory 1) (table $t 1 funcref) (tag $tag)
  (data $passive "x") (elem $e func $f) (elem declare func $f)
  (func $f (type $unary) (local.get 0))
  (func $tail (type $unary) (return_call $f (local.get 0)))
  (func $main (local $v v128) (local $i i32) (local $r (ref null $unary)) {})
  (func $after (throw $tag)))"""


def _scan(body: str) -> list[Found]:
    wasm = bytes(wat2wasm(MODULE.format(body)))
    return list(scan(wasm, inspect(wasm)))


def test_other_instructions_of_every_shape_are_skipped() -> None:
    assert _scan(INSTRUCTIONS) == []


@pytest.mark.parametrize(
    ("code", "opcode"),
    [
        ("(drop (memory.grow (i32.const 1)))", MEMORY_GROW),
        ("(memory.fill (i32.const 0) (i32.const 0) (i32.const 0))", 0xFC0B),
        ("(memory.copy (i32.const 0) (i32.const 0) (i32.const 0))", 0xFC0A),
        ("(memory.init $passive (i32.const 0) (i32.const 0) (i32.const 0))", 0xFC08),
        ("(table.set $t (i32.const 0) (ref.null func))", 0x26),
        ("(drop (table.grow $t (ref.null func) (i32.const 1)))", 0xFC0F),
        ("(table.fill $t (i32.const 0) (ref.null func) (i32.const 1))", 0xFC11),
        ("(table.copy $t $t (i32.const 0) (i32.const 0) (i32.const 0))", 0xFC0E),
        ("(table.init $t $e (i32.const 0) (i32.const 0) (i32.const 0))", 0xFC0C),
    ],
)
def test_memory_and_table_instructions_are_found_anywhere(code: str, opcode: int) -> None:
    assert opcode == MEMORY_GROW or opcode in TABLE_MUTATORS or opcode in BULK
    for body, count in ((code, 1), (INSTRUCTIONS + code, 1), (code + INSTRUCTIONS + code, 2)):
        found = _scan(body)
        assert [f.opcode for f in found] == [opcode] * count
        assert all(f.function == 2 for f in found)


def test_positions_of_found_instructions_are_exact() -> None:
    wasm = bytes(wat2wasm(MODULE.format("(drop (memory.grow (i32.const 1)))")))
    (found,) = scan(wasm, inspect(wasm))
    assert wasm[found.start : found.end] == b"\x40\x00"
    assert wasm[found.start - 2 : found.start] == b"\x41\x01"


def test_padded_opcode_does_not_hide_an_instruction() -> None:
    wasm = bytes(wat2wasm(MODULE.format("(table.fill $t (i32.const 0) (ref.null func) (i32.const 1))")))
    at = wasm.index(b"\xfc\x11\x00")
    # encode the same number in one more byte, and add it to the sizes of the body and the section
    shape = inspect(wasm)
    code = shape.section(10)
    assert code is not None
    start, _ = shape.bodies[2]
    padded = bytearray(wasm[:at] + b"\xfc\x91\x00" + wasm[at + 2 :])
    padded[start - 1] += 1
    padded[code.start - 1] += 1
    assert [f.opcode for f in scan(bytes(padded), inspect(bytes(padded)))] == [0xFC11]


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (b"\x06\x40\x0b", "legacy exceptions"),
        (b"\xfe\x03\x00", "threads"),
        (b"\xfb\x00\x00", "garbage-collected"),
        (b"\xff", "unknown"),
        (b"\xfc\x30", "unknown"),
        (b"\x41", "truncated"),
    ],
)
def test_unknown_instructions_are_refused_with_their_offset(code: bytes, hint: str) -> None:
    body = b"\x00" + code
    section = b"\x01" + bytes([len(body)]) + body
    wasm = b"\0asm\1\0\0\0\x01\x04\x01\x60\x00\x00\x03\x02\x01\x00\x0a" + bytes([len(section)]) + section
    with pytest.raises(ModuleError, match=hint) as caught:
        list(scan(wasm, inspect(wasm)))
    assert caught.value.detail["offset"] == len(wasm) - len(code)
