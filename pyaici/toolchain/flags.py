"""The flags of compilers and the linker for controllers; `system` has those of the libraries of C and C++."""

from __future__ import annotations

#: wasmtime enables SIMD and bulk memory by default; both make loops over masks several times faster
TARGET = ("-target", "wasm32-wasi", "-O3", "-msimd128", "-mbulk-memory")

#: a section per function, so that the linker drops unused code; no debug information, since the link strips
#: it and it makes objects 30 times as large
_OBJECTS = ("-ffunction-sections", "-fdata-sections", "-g0")
#: users of aici.h initialise structs with `{.size = sizeof(x)}`, so missing initialisers are intended
_WARNINGS = (
    "-Wall",
    "-Wextra",
    "-Wno-missing-field-initializers",
    "-Wno-missing-designated-field-initializers",
)

C = (*TARGET, "-std=gnu17", *_OBJECTS, *_WARNINGS)
#: WASI has no C++ exception support: `throw` would not link
CXX = (*TARGET, "-std=c++20", "-fno-exceptions", "-fno-rtti", *_OBJECTS, *_WARNINGS)

#: setjmp and longjmp by WebAssembly exceptions, only for sources that call them
SETJMP = ("-mllvm", "-wasm-enable-sjlj", "-mexception-handling", "-mllvm", "-wasm-use-legacy-eh=false")
#: third-party sources: small rather than fast, since wasmtime takes about a second to compile a MB of Wasm;
#: no warnings, since we do not fix their code
FOREIGN = ("-Os", "-w", "-DNDEBUG")

#: 64 KiB of stack instead of Zig's 16 MiB, which every instance would have to map
STACK_BYTES = 65536
#: a reactor has no `main`: the host calls `_initialize` once and then the exports
LINK = (
    *("wasm-ld", "--error-limit=0", "--entry", "_initialize", "--export-memory", "-s", "--stack-first"),
    "--build-id=none",
)

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
