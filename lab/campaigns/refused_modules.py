"""Modules that the runtime refuses at upload, and some borderline cases."""

from __future__ import annotations

from wasmtime import wat2wasm

from lab.campaigns.odd_modules import controller
from lab.campaigns.stranger import Stranger, of_module

_MARKER = '(func (export "aici_abi_v1"))'
_ARG = '(func (export "aici_arg") (result i32) (i32.const 64))'
_MID = '(func (export "aici_mid_process") (result i32) (i32.const 1024))'
_STOP = '(import "aici" "stop" (func $stop))'
_COMPUTED = "(i32.add (i32.const 1) (i32.const 2))"
_BITS = [" ".join("i32" if n >> bit & 1 else "i64" for bit in range(13)) for n in range(5001)]


REFUSED_MODULES: tuple[Stranger, ...] = (
    # ---- invalid modules
    of_module("empty", "a file without content", "module", "not WebAssembly", b"\0"),
    of_module("text", "a file of text", "module", "wat2wasm", b"(module)"),
    of_module("component", "a component", "module", "component", b"\0asm\x0d\0\1\0"),
    of_module("cut", "the first bytes of a module", "module", "truncated", b"\0asm\1\0\0\0\1\5\1"),
    of_module(
        "huge_count",
        "a section that claims 4 G types",
        "module",
        "do not fit",
        b"\0asm\1\0\0\0\1\5\xff\xff\xff\xff\x0f",
    ),
    of_module(
        "many_sections",
        "thousands of empty sections",
        "module",
        "sections",
        b"\0asm\1\0\0\0" + b"\0\1\0" * 5000,
    ),
    of_module("no_marker", "no marker of the ABI", "module", "aici_abi_v1", controller(marker="")),
    of_module(
        "other_abi",
        "another version of the ABI",
        "module",
        "version 7",
        controller(marker='(func (export "aici_abi_v7"))'),
    ),
    of_module("no_memory", "no memory", "module", "memory", (f"(module {_MARKER} {_ARG} {_MID})")),
    of_module("two_memories", "two memories", "module", "2 memories", controller("(memory 1)")),
    of_module(
        "memory_64",
        "a memory with 64-bit addresses",
        "module",
        "64-bit",
        (f'(module (memory (export "memory") i64 1) {_MARKER} {_ARG} {_MID})'),
    ),
    of_module(
        "memory_shared",
        "a memory shared between threads",
        "module",
        "shared",
        controller(memory='(memory (export "memory") 1 2 shared)'),
    ),
    of_module(
        "memory_huge",
        "starts with 4 GiB",
        "module",
        "more than the limit",
        controller(memory='(memory (export "memory") 65536)'),
    ),
    of_module(
        "memory_pages",
        "a memory with pages of a byte",
        "module",
        "page size",
        (f'(module (memory (export "memory") 4096 (pagesize 1)) {_MARKER} {_ARG} {_MID})'),
    ),
    of_module(
        "memory_global",
        "its memory is a global",
        "module",
        "memory",
        (f'(module (global (export "memory") i32 (i32.const 1)) {_MARKER} {_ARG} {_MID})'),
    ),
    of_module(
        "mid_is_global",
        "aici_mid_process is a global",
        "module",
        "is a global",
        controller(mid='(global (export "aici_mid_process") i32 (i32.const 1))'),
    ),
    of_module(
        "mid_is_table",
        "aici_mid_process is a table",
        "module",
        "is a table",
        controller(mid='(table (export "aici_mid_process") 1 funcref)'),
    ),
    of_module(
        "mid_is_memory",
        "aici_mid_process is the memory",
        "module",
        "is a memory",
        controller(mid='(export "aici_mid_process" (memory 0))'),
    ),
    of_module(
        "mid_type",
        "aici_mid_process takes arguments",
        "module",
        "has type",
        controller(mid='(func (export "aici_mid_process") (param i64 f64) (result i32) (i32.const 0))'),
    ),
    of_module(
        "mid_import",
        "aici_mid_process is the import aici_vocabulary",
        "module",
        "is an import",
        controller(
            imports='(import "aici" "vocabulary" (func $v (result i32)))',
            mid='(export "aici_mid_process" (func $v))',
        ),
    ),
    of_module(
        "arg_import",
        "aici_arg is the import aici_vocabulary",
        "module",
        "is an import",
        controller(
            imports='(import "aici" "vocabulary" (func $v (result i32)))', arg='(export "aici_arg" (func $v))'
        ),
    ),
    of_module(
        "initialize_import",
        "_initialize is the import aici_stop",
        "module",
        "is an import",
        controller('(export "_initialize" (func $stop))', imports=_STOP),
    ),
    of_module("command", "a command with _start", "module", "_start", controller('(func (export "_start"))')),
    of_module(
        "start_type",
        "its start function takes five arguments",
        "module",
        "start function",
        # the text format does not allow it: changes the index of the start function afterwards
        bytes(wat2wasm(controller("(func $s (param i32 i32 i32 i32 i32)) (func) (start 4)"))).replace(
            b"\x08\x01\x04", b"\x08\x01\x03"
        ),
    ),
    of_module(
        "import_unknown",
        "imports a function that does not exist",
        "module",
        "does not exist",
        controller(imports='(import "env" "system" (func (param i32) (result i32)))'),
    ),
    of_module(
        "import_type",
        "imports aici_read with another type",
        "module",
        "has type",
        controller(imports='(import "aici" "read" (func (param i64)))'),
    ),
    of_module(
        "import_memory",
        "imports its memory",
        "module",
        "imports memory",
        controller(imports='(import "env" "memory" (memory 1))', memory='(export "memory" (memory 0))'),
    ),
    of_module(
        "reserved",
        "exports a name of the runtime",
        "module",
        "reserved",
        controller('(func (export "__aici_rt_start"))'),
    ),
    of_module(
        "table_set",
        "changes a table",
        "module",
        "table.set",
        controller("(table 1 funcref) (func (table.set (i32.const 0) (ref.null func)))"),
    ),
    of_module(
        "table_grow",
        "a table bomb",
        "module",
        "table.grow",
        controller("(table 1 funcref) (func (drop (table.grow (ref.null func) (i32.const 100000000))))"),
    ),
    of_module(
        "table_huge",
        "a table of a hundred million entries",
        "module",
        "elements",
        controller("(table 100000000 funcref)"),
    ),
    of_module("tables", "a thousand tables", "module", "tables", controller("(table 1 funcref)" * 1000)),
    of_module(
        "global_reference",
        "a mutable reference, which cannot be cloned",
        "module",
        "cloned",
        controller("(global (mut externref) (ref.null extern))"),
    ),
    of_module(
        "globals",
        "ten thousand mutable globals",
        "module",
        "globals",
        controller("(global (mut i32) (i32.const 1))" * 10_000),
    ),
    of_module(
        "types",
        "five thousand different types",
        "module",
        "types",
        controller(*(f"(type (func (param {bits})))" for bits in _BITS)),
    ),
    of_module(
        "exports",
        "ten thousand exports",
        "module",
        "exports",
        controller(*(f'(export "e{n}" (func 0))' for n in range(10_000))),
    ),
    of_module(
        "data_computed",
        "data at an address that each instance computes",
        "module",
        "computed",
        controller(f'(data (offset {_COMPUTED}) "x")'),
    ),
    of_module(
        "data_far",
        "data over 64 MB, copied into each instance",
        "module",
        "span",
        controller('(data (i32.const 60000000) "x")', memory='(memory (export "memory") 1000)'),
    ),
    of_module(
        "data_many",
        "ten thousand data segments",
        "module",
        "data segments",
        controller('(data "x")' * 10_000),
    ),
    of_module(
        "data_outside",
        "data outside of its memory",
        "trap module",
        "",
        controller('(data (i32.const 70000) "x")'),
    ),
    of_module(
        "elements",
        "sixty thousand table entries filled by each instance",
        "module",
        "table entries",
        controller("(table 20000 funcref)", f"(elem (i32.const 0) func {'0 ' * 20_000})" * 3),
    ),
    of_module(
        "invalid_code",
        "code with wrong types",
        "module",
        "does not compile",
        controller(mid='(func (export "aici_mid_process") (result i32) (i64.const 0))'),
    ),
    of_module(
        "nested",
        "fifty thousand nested blocks",
        "goes on module",
        "",
        controller(f"(func {'(block ' * 50_000} {')' * 50_000})"),
    ),
    of_module(
        "threads",
        "an instruction of threads",
        "module",
        "threads",
        controller("(func (drop (i32.atomic.load (i32.const 0))))"),
    ),
)
