// probe.cpp - a heap of the SDK behind plain functions, for the tests.
#include <cstdint>
#include <new>

#include "../../../../controllers/sdk/src/controller/heap.hpp"

#define PROBE(name) extern "C" __attribute__((export_name(#name)))

namespace {

constinit aici::detail::Heap heap;

}  // namespace

PROBE(probe_take) void* probe_take(std::uint32_t size) { return heap.take(size); }
PROBE(probe_give_back) void probe_give_back(void* block) { heap.give_back(block); }
