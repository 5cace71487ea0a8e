// guest.hpp - included before every source: what the compiler of guests has and a native one does not.
#pragma once

#include <cstddef>

/// Pages of the guest's memory.
std::size_t aici_fuzz_pages();
#define __builtin_wasm_memory_size(memory) aici_fuzz_pages()
