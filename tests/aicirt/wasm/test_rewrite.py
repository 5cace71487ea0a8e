from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import wasmtime

from aicirt.contract.errors import MemoryLimitError, ModuleError, TimeLimitError, TrapError
from aicirt.wasm import Export, Instance
from aicirt.wasm.module.reader import inspect, leb
from aicirt.wasm.module.rewrite import RESERVED, rewrite
from lab.runners.wat import REQUIRED, controller

GROW = '(func (export "aici_pre_process") (result i32) {})'
Make = Callable[..., Instance]


def _reserved(wasm: bytes) -> dict[str, tuple[str, int]]:
    found = inspect(wasm).exports
    return {e.name.removeprefix(RESERVED): (e.kind, e.index) for e in found if e.name.startswith(RESERVED)}


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\x01"), (624485, b"\xe5\x8e\x26")]
)
def test_numbers_are_encoded_as_leb128(value: int, encoded: bytes) -> None:
    assert leb(value) == encoded


def test_mutable_state_and_start_are_exported() -> None:
    wasm = controller(
        """(table 3 funcref) (table 1 externref) (global i32 (i32.const 1)) (global (mut i64) (i64.const 2))
        (global (mut f32) (f32.const 3)) (func $s) (start $s)"""
    )
    out = rewrite(wasm)
    start = inspect(wasm).start
    assert start is not None
    assert _reserved(out) == {
        "memory0": ("memory", 0),
        "table0": ("table", 0),
        "table1": ("table", 1),
        "global1": ("global", 1),
        "global2": ("global", 2),
        "start": ("function", start),
    }
    assert inspect(out).start is None
    assert [e.name for e in inspect(out).exports if not e.name.startswith(RESERVED)] == [
        e.name for e in inspect(wasm).exports
    ]
    wasmtime.Module.validate(wasmtime.Engine(), out)


def test_module_without_exports_or_globals_gets_these_sections() -> None:
    wasm = bytes(wasmtime.wat2wasm("(module (memory 1) (func (drop (memory.grow (i32.const 1)))))"))
    assert inspect(wasm).section(7) is None and inspect(wasm).section(6) is None
    out = rewrite(wasm)
    wasmtime.Module.validate(wasmtime.Engine(), out)
    assert _reserved(out) == {"memory0": ("memory", 0), "global0": ("global", 0), "refused": ("global", 0)}


def test_empty_module_stays_valid() -> None:
    wasmtime.Module.validate(wasmtime.Engine(), rewrite(b"\0asm\1\0\0\0"))


def test_name_section_stays_and_other_custom_sections_are_removed() -> None:
    text = """(module (memory 1) (tag $t) (func $named (drop (memory.grow (i32.const 1))) (throw $t))
      (@custom "first" (before first) "1") (@custom "mid" (after func) "2")
      (@custom "last" (after last) "3"){})"""
    out = rewrite(bytes(wasmtime.wat2wasm(text.format(""))))
    wasmtime.Module.validate(wasmtime.Engine(), out)
    (kept,) = [s for s in inspect(out).sections if s.id == 0]
    assert out[kept.start : kept.start + 5] == b"\x04name" and b"named" in out
    huge = rewrite(bytes(wasmtime.wat2wasm(text.format(f"(func ${'x' * (1 << 20)})"))))
    assert [s for s in inspect(huge).sections if s.id == 0] == [] and len(huge) < 1000


def test_reserved_names_are_refused() -> None:
    with pytest.raises(ModuleError, match="reserved"):
        rewrite(controller(f'(func (export "{RESERVED}x"))'))
    with pytest.raises(ModuleError, match="reserved"):
        rewrite(rewrite(controller()))


def test_rewriting_does_not_change_memory_growth() -> None:
    """Uses functions of several sizes, with memory.grow in several positions."""
    padding = "(local.set 1 (i32.add (local.get 1) (i32.const 123456)))" * 60
    body = f"""(func $small (result i32) (memory.grow (i32.const 1)))
      (func (export "run") (param i32) (result i32) (local i32) {padding}
        (drop (memory.grow (local.get 0))) {padding} (drop (call $small))
        (i32.add (i32.mul (memory.size) (i32.const 100000)) (i32.mul (i32.const 1000)
          (i32.add (memory.grow (i32.const 2)) (memory.grow (local.get 0))))))
      (func (export "last") (result i32) (memory.grow (i32.const 0)))"""
    wasm = controller(body, required='(memory (export "memory") 1 40)')
    engine = wasmtime.Engine()
    answers = []
    for variant in (wasm, rewrite(wasm)):
        store = wasmtime.Store(engine)
        exports: Any = wasmtime.Instance(store, wasmtime.Module(engine, variant), []).exports(store)
        answers.append([exports["run"](store, n) for n in (1, 0, 7, 30, 5)] + [exports["last"](store)])
    assert answers[0] == answers[1]


def test_rewriting_does_not_change_bulk_instructions() -> None:
    body = """(data $one "0123456789") (data $two "abcdefghij")
      (func (export "run") (param i32) (result i64)
        (memory.fill (i32.const 100) (i32.const 7) (local.get 0))
        (memory.init $one (i32.const 104) (i32.const 2) (i32.const 3))
        (memory.init $two (i32.const 108) (i32.const 0) (i32.const 4))
        (memory.copy (i32.const 105) (i32.const 101) (i32.const 8))
        (i64.xor (i64.load (i32.const 100)) (i64.mul (i64.const 3) (i64.load (i32.const 108)))))"""
    wasm = controller(body)
    assert not any(name == "refused" for name in _reserved(rewrite(wasm)))
    engine = wasmtime.Engine()
    answers = []
    for variant in (wasm, rewrite(wasm)):
        store = wasmtime.Store(engine)
        exports: Any = wasmtime.Instance(store, wasmtime.Module(engine, variant), []).exports(store)
        answers.append([exports["run"](store, n) for n in (0, 1, 5, 16)])
        with pytest.raises(wasmtime.Trap):
            exports["run"](store, 65437)
    assert answers[0] == answers[1] and len(set(answers[0])) == 4


PIECE = 256 << 10


@pytest.mark.parametrize("count", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE, 3 * PIECE + 5])
@pytest.mark.parametrize("distance", [0, 1, 7, PIECE, PIECE + 1, 2 * PIECE])
def test_split_bulk_instructions_have_the_same_effect(count: int, distance: int) -> None:
    """Uses copies that overlap in both directions, and ranges up to and past the end of the memory."""
    size = 32 * 65536
    body = """(func (export "fill") (param i32 i32 i32)
        (memory.fill (local.get 0) (local.get 1) (local.get 2)))
      (func (export "copy") (param i32 i32 i32)
        (memory.copy (local.get 0) (local.get 1) (local.get 2)))"""
    wasm = controller(body, required=REQUIRED.replace(" 1)", " 32)"))
    engine = wasmtime.Engine()
    memories = []
    for variant in (wasm, rewrite(wasm)):
        store = wasmtime.Store(engine)
        exports: Any = wasmtime.Instance(store, wasmtime.Module(engine, variant), []).exports(store)
        memory = exports["memory"]
        memory.write(store, random.Random(1).randbytes(size))
        exports["copy"](store, 1000 + distance, 1000, count)
        exports["copy"](store, 300_000, 300_000 + distance, count)
        exports["fill"](store, 5, distance + 250, count)
        exports["copy"](store, size - count, 0, count)
        memories.append(bytes(memory.read(store)))
        for name, first, second in (
            ("fill", size - count + 1, 0),
            ("copy", size - count + 1, 0),
            ("copy", 0, size - count + 1),
            ("fill", 0xFFFFFFFF, 0),
            ("copy", 10, 0xFFFFFFF0),
        ):
            with pytest.raises(wasmtime.Trap):
                exports[name](store, first, second, count)
        for first, second in ((10, 0), (0, 10)):
            with pytest.raises(wasmtime.Trap):
                exports["copy"](store, first, second, 0xFFFFFFFF)
    assert memories[0] == memories[1]


def test_split_memory_init_copies_the_whole_segment() -> None:
    text = "".join(chr(97 + i % 26) * 3 for i in range(PIECE // 2))
    body = f"""(data $d "{text}") (func (export "run") (param i32 i32 i32)
      (memory.init $d (local.get 0) (local.get 1) (local.get 2)))"""
    out = rewrite(controller(body, required=REQUIRED.replace(" 1)", " 32)")))
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    exports: Any = wasmtime.Instance(store, wasmtime.Module(engine, out), []).exports(store)
    exports["run"](store, 77, 11, len(text) - 11)
    assert bytes(exports["memory"].read(store, 77, 77 + len(text) - 11)) == text[11:].encode()
    with pytest.raises(wasmtime.Trap):
        exports["run"](store, 77, 12, len(text) - 11)


def test_padded_bulk_opcode_is_rewritten_and_kept() -> None:
    wasm = controller("(func (memory.copy (i32.const 0) (i32.const 1) (i32.const 2)))")
    (at,) = (i for i in range(len(wasm)) if wasm[i : i + 4] == b"\xfc\x0a\0\0")
    shape = inspect(wasm)
    start, end = shape.bodies[-1]
    longer = wasm[start:at] + b"\xfc\x8a\x80\0\0\0" + wasm[at + 4 : end]
    code = shape.section(10)
    assert code is not None and code.end == end
    head = wasm[code.start : start - 1]
    whole = wasm[: code.start - 1] + leb(len(head) + 1 + len(longer)) + head + leb(len(longer)) + longer
    out = rewrite(whole + wasm[end:])
    assert out.count(b"\xfc\x8a\x80\0\0\0") > 2, "the copy is split, in both directions"
    wasmtime.Module.validate(wasmtime.Engine(), out)


def test_large_fill_can_be_interrupted(make: Make) -> None:
    """A single fill of 60 MB of untouched memory takes 30 ms."""
    fill = "(memory.fill (i32.const 0) (i32.const 1) (i32.const 60000000))"
    guest = make(GROW.format(fill + "(i32.const 0)"), required=REQUIRED.replace(" 1)", " 1000)"))
    with pytest.raises(TimeLimitError) as caught:
        guest.call(Export.PRE)
    assert caught.value.detail["used_ms"] < 15


def test_sequence_of_bulk_instructions_can_be_interrupted(make: Make) -> None:
    fill = "(memory.fill (i32.const 0) (i32.const 1) (i32.const 60000000))"
    guest = make(GROW.format(fill * 200 + "(i32.const 0)"), required=REQUIRED.replace(" 1)", " 1000)"))
    with pytest.raises(TimeLimitError) as caught:
        guest.call(Export.PRE)
    assert caught.value.detail["used_ms"] < 100  # all of them take 6 s


def test_trap_after_a_refused_growth_is_a_memory_error(make: Make) -> None:
    guest = make(
        GROW.format("(drop (memory.grow (i32.const 2))) (drop (memory.grow (i32.const 5000))) unreachable")
    )
    with pytest.raises(MemoryLimitError) as caught:
        guest.call(Export.PRE)
    detail = caught.value.detail
    assert detail["asked"] == 5000 * 65536 and detail["size"] == 3 * 65536 and detail["limit"] == 64 << 20
    assert "unreachable" in caught.value.message


def test_trap_after_a_later_successful_growth_is_a_trap(make: Make) -> None:
    survived = "(drop (memory.grow (i32.const 5000))) (drop (memory.grow (i32.const 1)))"
    with pytest.raises(TrapError):
        make(GROW.format(survived + " unreachable")).call(Export.PRE)


def test_refused_growth_alone_is_not_an_error(make: Make) -> None:
    guest = make(GROW.format("(memory.grow (i32.const 5000))"))
    assert guest.call(Export.PRE) == 0xFFFFFFFF
    assert guest.call(Export.MID) == 0
