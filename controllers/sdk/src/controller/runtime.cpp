// Replaces functions that the C++ library calls for fatal errors. The library's versions print with printf, which makes
// up half of a small controller. These end the sequence with the message as its error. They replace weak definitions,
// which a linker takes if it finds them first. So this file must be linked by name.
#include <__verbose_abort>
#include <new>

#include "aici/host.hpp"
#include "heap.hpp"

namespace {
/// Not inlined, since every controller contains this code.
[[noreturn, gnu::noinline]] void fail(const char* message) { aici::fail(message); }
}  // namespace

_LIBCPP_BEGIN_NAMESPACE_STD
void __libcpp_verbose_abort(const char* format, ...) noexcept { fail(format); }
_LIBCPP_END_NAMESPACE_STD

// Weak, since another symbol may pull in the library's own definition from the same file.
extern "C" __attribute__((weak)) void __cxa_pure_virtual() { fail("a pure virtual function was called"); }

namespace aici::detail {
void link_runtime() {}
}  // namespace aici::detail

static constinit aici::detail::Heap heap;

void* operator new(std::size_t size) {
  void* block = heap.take(size);
  if (block == nullptr) fail("out of memory: the controller has reached its memory limit");
  return block;
}
void* operator new[](std::size_t size) { return operator new(size); }
void operator delete(void* block) noexcept { heap.give_back(block); }
void operator delete(void* block, std::size_t) noexcept { heap.give_back(block); }
void operator delete[](void* block) noexcept { heap.give_back(block); }
void operator delete[](void* block, std::size_t) noexcept { heap.give_back(block); }
