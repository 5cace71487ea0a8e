"""Every compiler and linker flag, once.

Zig builds its libc (and libc++) once per set of target flags, which takes about 20 s each. So `TARGET` is the
same for C, C++ and the link, and nothing else here may be a target or optimisation flag.
"""

from __future__ import annotations

#: wasmtime runs SIMD and bulk memory by default; both make loops over masks several times faster
TARGET = ("-target", "wasm32-wasi", "-O3", "-msimd128", "-mbulk-memory")

#: a section per function, so that the link drops what a controller does not use; no debug information, since
#: the link strips it and objects are 30 times as large with it
_OBJECTS = ("-ffunction-sections", "-fdata-sections", "-g0")
#: `{.size = sizeof(x)}` is how the structs of aici.h begin, so missing initialisers are meant
_WARNINGS = (
    "-Wall",
    "-Wextra",
    "-Wno-missing-field-initializers",
    "-Wno-missing-designated-field-initializers",
)

C = (*TARGET, "-std=gnu17", *_OBJECTS, *_WARNINGS)
#: there is no C++ exception support for WASI: `throw` would not link
CXX = (*TARGET, "-std=c++20", "-fno-exceptions", "-fno-rtti", *_OBJECTS, *_WARNINGS)

#: setjmp and longjmp, by the exceptions of WebAssembly: for sources that call them. Others, and the link, do
#: without: as flags of the link they would have Zig build another libc
SETJMP = ("-mllvm", "-wasm-enable-sjlj", "-mexception-handling", "-mllvm", "-wasm-use-legacy-eh=false")
#: sources of others: small rather than fast, for wasmtime takes about a second per MB of Wasm to compile, and
#: without warnings, which are not ours to heed
FOREIGN = ("-Os", "-w", "-DNDEBUG")

#: 64 KiB of stack instead of Zig's 16 MiB, which every instance would have to map
STACK_BYTES = 65536
#: a reactor has no `main`: the host calls `_initialize` once and then the exports
LINK = (*TARGET, "-s", "-mexec-model=reactor", f"-Wl,-z,stack-size={STACK_BYTES}", "-Wl,--gc-sections")

ZIG = (
    *(
        "-target",
        "wasm32-wasi",
        "-mexec-model=reactor",
        "-O",
        "ReleaseSmall",
        "-mcpu=baseline+simd128+bulk_memory",
    ),
    *("-fstrip", "-fno-entry", "-rdynamic", "--stack", str(STACK_BYTES)),
)


def stack(size: int) -> tuple[str, ...]:
    """For after `LINK`: another stack than `STACK_BYTES`; the last one counts."""
    return (f"-Wl,-z,stack-size={size}",)
