"""Hostile modules that cannot be written in C: start functions, exceptions, long rows of one instruction."""

from __future__ import annotations

from wasmtime import wat2wasm

from lab.attacks.modules import doubling, straight_module, with_name
from lab.campaigns.stranger import CRITICAL, Stranger, of_module

_MARKER = '(func (export "aici_abi_v1"))'
_MEMORY = '(memory (export "memory") 1)'
_ARG = '(func (export "aici_arg") (result i32) (i32.const 64))'
_SIZED = '(data (i32.const 64) "\\a8\\00\\00\\00")'
#: samples any token
_MID = '(func (export "aici_mid_process") (result i32) (i32.const 1024))'
_SAMPLE = '(data (i32.const 1024) "\\2c\\00\\00\\00\\04")'
_PRE = '(func (export "aici_pre_process") (result i32) {} (i32.const 2048))'
_CONTINUE = '(data (i32.const 2048) "\\0c\\00\\00\\00\\01")'


def controller(
    *parts: str,
    imports: str = "",
    memory: str = _MEMORY,
    arg: str = _ARG,
    mid: str = _MID,
    marker: str = _MARKER,
) -> str:
    """Returns the text of a well-behaved module, with some parts added or replaced."""
    return (
        f"(module {imports} {memory} {marker} {arg} {mid} {_SIZED} {_SAMPLE} {_CONTINUE} {' '.join(parts)})"
    )


def mid(code: str) -> str:
    """Returns an `aici_mid_process` that runs this code first."""
    return f'(func (export "aici_mid_process") (result i32) {code} (i32.const 1024))'


_IN_A_ROW = "(memory.fill (i32.const 4096) (i32.const 1) (i32.const 60000000))"
_LONG = "n" * 100_000
_STOP = '(import "aici" "stop" (func $stop))'


ODD_MODULES: tuple[Stranger, ...] = (
    of_module("good", "behaves well: the other modules are variations of it", "goes on", "", controller()),
    of_module(
        "name_explodes",
        "traps in a function whose C++ name doubles when it is demangled",
        "trap",
        "unreachable",
        with_name(bytes(wat2wasm(controller(mid=mid("unreachable")))), 2, doubling(2000).encode()),
    ),
    of_module(
        "straight_line",
        "follows 400 000 links of its memory in pre_process without a loop or a call",
        "time_limit",
        "aici_pre_process used",
        straight_module(),
    ),
    # ---- start functions
    of_module(
        "start_function_loop",
        "its start function never returns",
        "time_limit",
        "start",
        controller("(func $s (loop $l (br $l))) (start $s)"),
    ),
    of_module(
        "start_function_recurse",
        "its start function recurses",
        "trap",
        "stack",
        controller("(func $s (call $s)) (start $s)"),
    ),
    of_module(
        "start_function_trap",
        "its start function traps",
        "trap",
        "unreachable",
        controller("(func $s unreachable) (start $s)"),
    ),
    of_module(
        "start_function_stop",
        "its start function calls aici_stop",
        "failed",
        "aici_stop",
        controller("(func $s (call $stop)) (start $s)", imports=_STOP),
    ),
    of_module(
        "start_function_grow",
        "its start function takes all memory and traps",
        "memory_limit",
        "requested",
        controller("(func $s (drop (memory.grow (i32.const 5000))) unreachable) (start $s)"),
    ),
    # ---- instructions that C does not use
    of_module(
        "convert",
        "converts NaN to an integer",
        "trap",
        "integer",
        controller(mid=mid("(drop (i32.trunc_f32_s (f32.const nan)))")),
    ),
    of_module(
        "throw",
        "throws an exception that is not caught",
        "trap",
        "exception",
        controller("(tag $t)", mid=mid("(throw $t)")),
    ),
    of_module(
        "throw_storm",
        "throws and catches forever",
        "time_limit",
        "aici_mid_process",
        controller(
            "(tag $t (param i32))",
            mid=mid("""(loop $l (block $h (result i32)
          (try_table (result i32) (catch $t $h) (throw $t (i32.const 3)))) drop (br $l))"""),
        ),
    ),
    of_module(
        "throw_and_keep",
        "throws, keeps the caught exception, and recurses",
        "trap",
        "stack",
        controller(
            """(tag $t) (func $r (local exnref) (block $h (result exnref)
          (try_table (result exnref) (catch_ref $t $h) (throw $t))) (local.set 0) (call $r)
          (drop (ref.is_null (local.get 0))))""",
            mid=mid("(call $r)"),
        ),
    ),
    of_module(
        "fills_in_a_row",
        "two hundred fills of 60 MB without a loop",
        "time_limit",
        CRITICAL,
        controller(_PRE.format(_IN_A_ROW * 200), memory='(memory (export "memory") 1000)'),
    ),
    of_module(
        "grows_in_a_row",
        "ten thousand calls of memory.grow without a loop",
        "time_limit goes on",
        "",
        controller(_PRE.format("(drop (memory.grow (i32.const 0)))" * 10_000)),
    ),
    of_module(
        "long_backtrace",
        "recurses in a function with a name of 100 kB",
        "trap",
        "stack",
        controller(f"(func ${_LONG} (call ${_LONG}))", mid=mid(f"(call ${_LONG})")),
    ),
    of_module(
        "endless_branches",
        "a loop that has only a branch table",
        "time_limit",
        "aici_mid_process",
        controller(mid=mid("(loop $l (br_table $l $l $l (i32.const 1)))")),
    ),
    of_module(
        "stack_in_pieces",
        "recurses with thousands of locals",
        "trap",
        "stack",
        controller(
            f"(func $r (param i32) (local {'i64 ' * 5000}) (call $r (local.get 0)))",
            mid=mid("(call $r (i32.const 1))"),
        ),
    ),
)
