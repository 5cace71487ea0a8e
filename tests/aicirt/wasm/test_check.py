from __future__ import annotations

import re

import pytest
from wasmtime import wat2wasm

from aicirt.contract.abi import known_imports
from aicirt.contract.errors import ModuleError
from aicirt.wasm import Limits
from aicirt.wasm.module.check import check
from aicirt.wasm.module.rewrite import RESERVED
from lab.runners.wat import IMPORTS, MID, controller

MARKER = '(func (export "aici_abi_v1"))'
ARG = '(func (export "aici_arg") (result i32) (i32.const 0))'
MEMORY = '(memory (export "memory") 1)'
COMPUTED = "(i32.add (i32.const 1) (i32.const 2))"
LOW = '(data (i32.const 1024) "x")'


def _reasons(*parts: str, limits: Limits | None = None) -> list[str]:
    return check(bytes(wat2wasm(f"(module {' '.join(parts)})")), limits).reasons


def test_valid_module_is_accepted_and_described() -> None:
    body = """(func (export "aici_init") (param i32) (result i32) (i32.const 0))
      (func (export "aici_post_process") (result i32) (i32.const 0))"""
    wasm = controller(body, imports=IMPORTS)
    report = check(wasm)
    report.require()
    assert report.accepted and report.reasons == []
    assert report.size == len(wasm) and report.abi_version == 1 and report.initial_memory == 65536
    assert (report.has_init, report.has_init_prompt, report.has_pre, report.has_post) == (
        True,
        False,
        False,
        True,
    )
    assert [i.name for i in report.imports] == ["read", "vocabulary", "tokenize", "stop", "fail"]
    assert "aici_mid_process" in [e.name for e in report.exports]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((MEMORY, ARG, MID), "does not export aici_abi_v1"),
        ((MEMORY, ARG, MID, '(func (export "aici_abi_v7"))'), "ABI version 7"),
        ((MARKER, ARG, MID), "export its memory"),
        ((MARKER, ARG, MID, "(memory 1)"), "export its memory"),
        ((MARKER, ARG, MID, '(memory (export "mem") 1)'), "export its memory"),
        ((MARKER, MEMORY, MID), "does not export the function aici_arg"),
        ((MARKER, MEMORY, ARG), "does not export the function aici_mid_process"),
        ((MARKER, MEMORY, ARG, '(global (export "aici_mid_process") i32 (i32.const 1))'), "is a global"),
        (
            (MARKER, MEMORY, ARG, '(func (export "aici_mid_process") (param i32))'),
            r"has type \(i32\) -> \(\)",
        ),
        (
            (MARKER, MEMORY, ARG, MID, '(func (export "aici_init") (result i32) i32.const 0)'),
            "its export aici_init",
        ),
        ((MARKER, MEMORY, ARG, MID, '(func (export "aici_pre_process"))'), "its export aici_pre_process"),
        ((MARKER, MEMORY, ARG, MID, '(func (export "_initialize") (param i32))'), "its export _initialize"),
        ((MARKER, MEMORY, ARG, MID, '(func (export "_start"))'), "-mexec-model=reactor"),
        ((MARKER, MEMORY, ARG, MID, f'(func (export "{RESERVED}g"))'), "reserved"),
        (
            (
                '(import "aici" "vocabulary" (func $v (result i32)))',
                MARKER,
                MEMORY,
                MID,
                '(export "aici_arg" (func $v))',
            ),
            "its export aici_arg is an import",
        ),
        (('(import "aici" "stop" (func $s))', MARKER, MEMORY, ARG, MID, "(start $s)"), "its start function"),
        (('(import "env" "foo" (func))', MARKER, MEMORY, ARG, MID), "env.foo.*undefined symbol"),
        (('(import "aici" "teleport" (func))', MARKER, MEMORY, ARG, MID), "aici.teleport.*in this runtime"),
        (('(import "aici" "stop" (func (param i32)))', MARKER, MEMORY, ARG, MID), "aici.stop has type"),
        (
            ('(import "wasi_snapshot_preview1" "fd_close" (func))', MARKER, MEMORY, ARG, MID),
            "fd_close has type",
        ),
        (('(import "wasi_unstable" "fd_close" (func))', MARKER, MEMORY, ARG, MID), "preview 1"),
        (
            ('(import "env" "m" (memory 1)) (export "memory" (memory 0))', MARKER, ARG, MID),
            "imports memory env.m,.*--import-memory",
        ),
        (('(import "aici" "read" (global i32))', MARKER, MEMORY, ARG, MID), "imports global aici.read"),
        (('(import "env" "t" (table 1 funcref))', MARKER, MEMORY, ARG, MID), "imports table env.t"),
        ((MARKER, MEMORY, "(memory 1)", ARG, MID), "2 memories"),
        ((MARKER, '(memory (export "memory") i64 1)', ARG, MID), "64-bit"),
        ((MARKER, '(memory (export "memory") 1 2 shared)', ARG, MID), "shared between threads"),
        ((MARKER, '(memory (export "memory") 2000)', ARG, MID), "131072000 bytes, more than the limit"),
        ((MARKER, '(memory (export "memory") 1 (pagesize 1))', ARG, MID), "custom page size"),
        ((MARKER, MEMORY, "(table 1000000 funcref)", ARG, MID), "1000000 elements, more than"),
        ((MARKER, MEMORY, "(table i64 1 funcref)", ARG, MID), "64-bit indices"),
        ((MARKER, MEMORY, "(table 1 funcref)" * 5, ARG, MID), "5 tables"),
        ((MARKER, MEMORY, ARG, MID, "(global i32 (i32.const 1))" * 5001), "5001 globals"),
        ((MARKER, MEMORY, ARG, MID, "(global (mut i32) (i32.const 1))" * 201), "201 mutable globals"),
        (('(import "aici" "stop" (func))' * 5001, MARKER, MEMORY, ARG, MID), "5001 imports"),
        ((MARKER, MEMORY, ARG, MID, *(f'(func (export "f{i}"))' for i in range(500))), "504 exports"),
        ((MARKER, MEMORY, ARG, MID, f'(func (export "{"x" * 65536}"))'), "names of exports, more than"),
        ((MARKER, MEMORY, ARG, MID, "(func)" * 100_000), "100003 functions, more than"),
        ((f"(type (func (param {'i32 ' * 900})))" * 6, MARKER, MEMORY, ARG, MID), "5401 parameters"),
        ((MARKER, MEMORY, ARG, MID, "(global (mut externref) (ref.null extern))"), "cannot be cloned"),
        ((MARKER, MEMORY, ARG, MID, '(data "x")' * 5001), "5001 data segments, more than"),
        ((MARKER, MEMORY, ARG, MID, "(elem funcref)" * 5001), "5001 element segments, more than"),
        ((MARKER, MEMORY, ARG, MID, "(tag)" * 5001), "5001 tags, more than"),
        ((MARKER, MEMORY, ARG, MID, f"(data (offset {COMPUTED}))"), "its data segment 0 is computed"),
        (
            (MARKER, MEMORY, ARG, MID, '(data "") (global $g i32 (i32.const 1)) (data (global.get $g) "x")'),
            "its data segment 1 is computed",
        ),
        (
            (MARKER, MEMORY, ARG, MID, "(table 9 funcref)", f"(elem (offset {COMPUTED}) func 0)"),
            "its element segment 0 is computed",
        ),
        (
            (MARKER, '(memory (export "memory") 500)', ARG, MID, '(data (i32.const 20000000) "x")', LOW),
            "span 19998977 bytes of memory, more than the limit of 16777216",
        ),
        (
            (MARKER, MEMORY, ARG, MID, "(table 9 funcref)", f"(elem (i32.const 0) func {'0 ' * 9999})" * 3),
            "fill more table entries than the limit of 20000",
        ),
        (
            (MARKER, MEMORY, ARG, MID, "(table 1 funcref) (func (table.set (i32.const 0) (ref.null func)))"),
            r"table.set in function 3",
        ),
    ],
)
def test_each_defect_gives_exactly_one_reason(parts: tuple[str, ...], reason: str) -> None:
    (found,) = _reasons(*parts)
    assert re.search(reason, found), found


def test_many_types_are_refused() -> None:
    """Loading a module takes microseconds per type, and the worker cannot interrupt it."""
    (found,) = _reasons("(type (func))" * 5000, MARKER, MEMORY, ARG, MID)
    assert re.search(r"it has 500\d types, more than the limit of 5000", found), found


def test_segments_of_every_kind_are_accepted() -> None:
    """Uses active, passive and declared segments, with indices and with expressions, for each table."""
    assert not _reasons(
        MARKER,
        MEMORY,
        ARG,
        MID,
        "(table 10 funcref) (table 3 externref) (func $f) (elem (i32.const 1) func $f)",
        "(elem func $f) (elem (i32.const 2) funcref (ref.func $f) (ref.null func))",
        "(elem declare func $f) (elem funcref (ref.func $f))",
        "(elem (table 1) (i32.const 0) externref (ref.null extern)) (elem declare funcref (ref.func $f))",
        '(elem (table 0) (i32.const 0) func $f) (data "passive") (data (i32.const 16) "active") (data "")',
        '(data (memory 0) (i32.const 70) "x")',
    )


@pytest.mark.parametrize("section", [9, 11])
@pytest.mark.parametrize(
    "content", [b"\1", b"\1\x08", b"\1\0\x41", b"\1\0\x41\1\x0b\x40", b"\xff\xff\xff\xff\x0f"]
)
def test_malformed_segments_are_refused(section: int, content: bytes) -> None:
    wasm = controller("(table 1 funcref)") + bytes((section, len(content))) + content
    (reason,) = check(wasm).reasons
    assert "malformed WebAssembly" in reason


def test_all_reasons_are_listed_at_once() -> None:
    reasons = _reasons('(import "env" "foo" (func))', "(memory 2000)", '(func (export "_start"))')
    assert len(reasons) == 7
    with pytest.raises(ModuleError, match="6 more reasons") as caught:
        check(
            bytes(wat2wasm('(module (import "env" "foo" (func)) (memory 2000) (func (export "_start")))'))
        ).require()
    assert caught.value.detail["reasons"] == reasons


def test_many_unknown_imports_are_counted() -> None:
    imports = " ".join(f'(import "env" "f{i}" (func))' for i in range(50))
    reasons = _reasons(imports, MARKER, MEMORY, ARG, MID)
    assert len(reasons) == 21 and reasons[-1] == "it has 30 more unknown imports"


def test_limits_of_the_caller_apply() -> None:
    wasm = controller()
    assert "more than the limit of 10" in check(wasm, Limits(module_bytes=10)).reasons[0]
    assert check(wasm, Limits(memory_bytes=65536)).accepted
    assert not check(wasm, Limits(memory_bytes=65535)).accepted


def test_bytes_that_are_not_a_module_give_one_reason() -> None:
    assert len(check(b"hello").reasons) == 1
    assert check(b"hello").exports == []


def test_every_known_import_is_accepted() -> None:
    def text(kind: tuple[str, ...], word: str) -> str:
        return f"({word} {' '.join(kind)})" if kind else ""

    imports = [
        f'(import "{module}" "{name}" (func {text(kind.params, "param")} {text(kind.results, "result")}))'
        for (module, name), kind in known_imports().items()
    ]
    assert len(imports) == 55
    assert _reasons(*imports, MARKER, MEMORY, ARG, MID) == []
