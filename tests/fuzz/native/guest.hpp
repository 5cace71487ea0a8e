// guest.hpp - included before every source: builtins of the compiler for guests that a native compiler lacks.
#pragma once

#include <cstddef>

/// Pages of the guest's memory.
std::size_t aici_fuzz_pages();
#define __builtin_wasm_memory_size(memory) aici_fuzz_pages()
