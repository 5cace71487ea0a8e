"""Every limit on a guest, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from aicirt.limit import limit

#: bytes of a WebAssembly page, the unit of memory.grow
WASM_PAGE = 65536


@dataclass(frozen=True, slots=True)
class Limits:
    """What one guest may use. Times are CPU time of the guest, in milliseconds."""

    #: linear memory without shared mappings. A regex at 262 k tokens needs about 1 MiB; a
    #: script interpreter 1-16 MiB. Memory is only paid for when touched.
    memory_bytes: int = limit(
        64 << 20, "bytes", "memory.grow fails; if the controller then traps, memory_limit"
    )
    #: entries of all tables: one per function whose address is taken; large programs have 10 k
    table_elements: int = limit(20_000, "entries", "table.grow fails")
    #: mutable globals: C has one, AssemblyScript 14; each takes a microsecond of every clone
    mutable_globals: int = limit(200, "globals", "the module is refused")
    #: exports. Compilers make tens. A worker pauses while it loads a module: about 1.5 us for each export
    exports: int = limit(500, "exports", "the module is refused")
    #: names of all exports together. Loading takes 2 ms for each MB of them
    export_bytes: int = limit(64 << 10, "bytes of names", "the module is refused")
    #: functions. Large programs have 10 k. Loading takes 35 ns for each
    functions: int = limit(100_000, "functions", "the module is refused")
    #: types, globals, imports, tags and segments, of each kind; compilers make tens, and loading,
    #: instantiating and describing a module takes microseconds for each (types: 9 us). Also parameters and
    #: results of all types together: 45 ns for each
    items: int = limit(5_000, "of each kind", "the module is refused (types, globals, imports, segments...)")
    #: tables: one of functions, one of exceptions or references
    tables: int = limit(4, "tables", "the module is refused")
    #: a module's file. An interpreter is 1 MB; compiling costs about 1.3 s per MB
    module_bytes: int = limit(16 << 20, "bytes", "the module is refused")
    #: `aici_init`, `aici_init_prompt` and the start functions: may build large tables
    init_ms: float = limit(1000.0, "ms", "time_limit")
    #: on the critical path between two forward passes. A sequence may save up what it does not use, as far as
    #: `critical_saved_ms`
    pre_ms: float = limit(1.0, "ms a step", "time_limit, once what was saved is used too")
    #: runs beside the forward pass, which takes about this long
    mid_ms: float = limit(20.0, "ms a step", "the sequence is late, see max_late_steps")
    #: what slow host functions (tokenize) may take in one `aici_mid_process` besides, which cannot be
    #: interrupted. In the other callbacks their time is the guest's: everybody waits for it there
    mid_host_ms: float = limit(20.0, "ms of tokenize a step", "time_limit")
    #: on the critical path between two forward passes, as `pre_ms`
    post_ms: float = limit(1.0, "ms a step", "time_limit, once what was saved is used too")
    #: what a sequence has of both at the start, and may save: a call that takes long once in a while, or that
    #: a busy machine interrupts, is not ended. Others wait so long at most
    critical_saved_ms: float = limit(2.0, "ms", "more is not saved; pre_ms + post_ms if that is more")
    #: one call of `aici_warm`. Nobody waits for it, but only between two calls there is a state to keep. A
    #: mask of a large vocabulary takes 0.1 to 1 ms, tokens that are sure to come take up to 10 ms to find
    warm_ms: float = limit(50.0, "ms a call", "the snapshot stays as it was")
    #: read-only mappings (the vocabulary image: 10 MB at 262 k tokens), counted apart
    shared_bytes: int = limit(256 << 20, "bytes", "memory_limit (the vocabulary, which all share)")


#: Stack of Wasm code. wasmtime's default; a thread needs this much and `STACK_MARGIN` more.
WASM_STACK = 512 << 10
#: Stack that host functions (Python) may need on top of the Wasm stack. Wasm running out of
#: stack within less than this of a thread's end kills the process.
STACK_MARGIN = 256 << 10
#: Stack of a fiber: Wasm and, on the same stack, host functions and the epoch callback.
FIBER_STACK = 2 << 20
#: Period of the epoch ticker: the unit in which time limits are looked at. Each tick costs
#: about 25 us of another thread while a guest runs.
TICK_MS = 1.0
