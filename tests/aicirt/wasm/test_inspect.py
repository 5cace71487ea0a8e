from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wasmtime import wat2wasm

from aicirt.contract.abi import FuncType
from aicirt.contract.errors import ModuleError
from aicirt.wasm.module.check import check
from aicirt.wasm.module.checkpoints import scan
from aicirt.wasm.module.reader import Extent, GlobalType, WasmReader, inspect
from aicirt.wasm.module.rewrite import rewrite
from lab.runners.wat import IMPORTS, controller
from tests.thorough import cases

RICH = controller(
    """(table 5 10 funcref) (global $a (mut i64) (i64.const -1)) (global f32 (f32.const 1.5))
    (global (mut v128) (v128.const i64x2 1 2))
    (tag $t (param i32)) (start $s) (func $s (memory.grow (i32.const 1)) drop)
    (func (export "_initialize") (local i32 i64 v128) (block $c (result i32)
      (try_table (catch $t $c) (throw $t (i32.const 1))) (i32.const 1)) drop)
    (elem (i32.const 0) $s) (elem declare func $s) (data (i32.const 8) "abc") (data "passive")
    """,
    imports=IMPORTS,
)


def test_inspect_finds_all_parts_of_a_module() -> None:
    shape = inspect(RICH)
    assert shape.size == len(RICH)
    read = shape.imports[0]
    assert (read.module, read.name, read.kind) == ("aici", "read", "function")
    assert read.type == FuncType(("i32",) * 4, ("i32",))
    assert shape.imported_functions == 5
    assert shape.memories == [Extent(1, None)]
    assert shape.tables == [Extent(5, 10, element="funcref")]
    assert shape.globals == [GlobalType("i64", True), GlobalType("f32", False), GlobalType("v128", True)]
    assert shape.start is not None and shape.functions[shape.start] == FuncType((), ())
    exported = {e.name: e for e in shape.exports}
    assert shape.functions[exported["aici_arg"].index] == FuncType((), ("i32",))
    assert exported["memory"].kind == "memory"
    assert len(shape.bodies) == len(shape.functions) - 5
    assert all(RICH[end - 1] == 0x0B for _, end in shape.bodies)


@pytest.mark.parametrize(
    ("wasm", "message", "offset"),
    [
        (b"", "not WebAssembly", 0),
        (b"#!/bin/sh\n", "not WebAssembly", 0),
        (b"  (module)", "wat2wasm", 0),
        (b"\0asm", "truncated", 4),
        (b"\0asm\x0d\0\1\0", "component", 4),
        (b"\0asm\2\0\0\0", "unknown WebAssembly version 2", 4),
        (b"\0asm\1\0\0\0\x20\0", "unknown section 32", 8),
        (b"\0asm\1\0\0\0\x01\x05\x01", "truncated", 10),
        (b"\0asm\1\0\0\0" + b"\0\1\0" * 1001, "more than 1000 sections", 3008),
        (b"\0asm\1\0\0\0\x01\x01\x00\x01\x01\x00", "second type section", 11),
        (b"\0asm\1\0\0\0\x01\x02\x00\x00", "left over", 11),
        (b"\0asm\1\0\0\0\x01\x02\x01\x5f", "garbage-collected", 11),
        (b"\0asm\1\0\0\0\x01\x06\xff\xff\xff\xff\xff\x01", "does not fit in 32 bits", 10),
        (b"\0asm\1\0\0\0\x01\x05\xff\xff\xff\xff\x0f", "do not fit in the section", 10),
        (b"\0asm\1\0\0\0\x02\x05\x01\x02\xff\xfe\x00", "not UTF-8", 11),
        (b"\0asm\1\0\0\0\x03\x02\x01\x00", "type 0 does not exist", 11),
    ],
)
def test_errors_name_the_offset_in_malformed_modules(wasm: bytes, message: str, offset: int) -> None:
    with pytest.raises(ModuleError, match=message) as caught:
        inspect(wasm)
    assert caught.value.detail["offset"] == offset


@pytest.mark.parametrize("section", [b"\0\0", b"\0\1\5", b"\0\2\1\xff"])
def test_a_custom_section_without_a_name_is_refused(section: bytes) -> None:
    """wasmtime refuses it, and the rewriter would drop it."""
    with pytest.raises(ModuleError, match="custom section"):
        inspect(controller() + section)


def test_every_truncation_is_refused() -> None:
    # the file up to the end of the code section, or of a section after it, is a complete module
    whole = {section.end for section in inspect(RICH).sections if section.id in (10, 11)}
    for length in set(range(len(RICH))) - whole:
        cut = RICH[:length]
        report = check(cut)
        assert report.reasons, f"cut at {length}"
        try:
            rewrite(cut)
        except ModuleError:
            pass


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (b"\0", 0),
        (b"\x3f", 63),
        (b"\x40", -64),
        (b"\x7f", -1),
        (b"\xff\x00", 127),
        (b"\x80\x7f", -128),
        (b"\xff\xff\xff\xff\x07", (1 << 31) - 1),
        (b"\x80\x80\x80\x80\x78", -(1 << 31)),
    ],
)
def test_signed_leb128_numbers(encoded: bytes, value: int) -> None:
    assert WasmReader(encoded).sint() == value
    with pytest.raises(ModuleError, match="too many bytes"):
        WasmReader(b"\x80\x80\x80\x80\x80\0").sint()


@pytest.mark.parametrize("kind", ["(param i32)", "(result i32)", "(param i32 i64 f64) (result f32)"])
def test_start_function_with_parameters_or_results_is_refused(kind: str) -> None:
    """The start function becomes an export. Calling it with a wrong type would kill the process."""
    text = f'(module (func) (func {kind} unreachable) (start 0) (func (export "a")))'
    good = bytes(wat2wasm(text))
    assert inspect(good).start == 0
    bad = good.replace(b"\x08\x01\x00", b"\x08\x01\x01")
    for read in (inspect, rewrite):
        with pytest.raises(ModuleError, match=r"start function 1 has type .*, expected \(\) -> \(\)"):
            read(bad)
    assert "start function 1" in check(bad).reasons[0]


def test_indices_out_of_range_are_refused() -> None:
    good = wat2wasm('(module (func (export "f")))')
    assert inspect(good).exports[0].index == 0
    with pytest.raises(ModuleError, match="function 9 does not exist"):
        inspect(good.replace(b"\x01f\x00\x00", b"\x01f\x00\x09"))


@settings(max_examples=cases(100, 400), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(RICH) - 1),
            st.integers(0, 4),
            st.binary(max_size=6)
            | st.sampled_from([b"\xff" * 5, b"\x80\x80\x80\x80\x00", b"\xfc\x0e", b"\x00"]),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_damaged_modules_raise_only_module_errors(edits: list[tuple[int, int, bytes]]) -> None:
    wasm = bytearray(RICH)
    for at, removed, inserted in edits:
        wasm[at : at + removed] = inserted
    damaged = bytes(wasm)
    report = check(damaged)
    assert report.size == len(damaged)
    try:
        list(scan(damaged, inspect(damaged)))
    except ModuleError as error:
        assert report.reasons or "malformed" not in error.message
    try:
        inspect(rewrite(damaged))
    except (
        ModuleError
    ):  # also for what only a compiler would find otherwise, such as a branch out of all blocks
        pass


@settings(max_examples=cases(50, 200), deadline=None)
@given(st.binary(max_size=200))
def test_random_sections_are_refused_or_read(tail: bytes) -> None:
    wasm = b"\0asm\1\0\0\0" + tail
    assert check(wasm).reasons
    try:
        inspect(rewrite(wasm))
    except ModuleError:
        pass
