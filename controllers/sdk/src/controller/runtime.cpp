// What the C++ library does when it cannot go on. Its own versions print by way of printf, which is
// half of a small controller; these end the sequence with the message as its error. They replace weak
// definitions, which a linker takes first if it finds them first: so this file must be linked by name.
#include <__verbose_abort>
#include <new>

#include "aici/host.hpp"
#include "heap.hpp"

namespace {
/// Once, not in each place that calls it: every controller has it.
[[noreturn, gnu::noinline]] void fail(const char* message) { aici::fail(message); }
}  // namespace

_LIBCPP_BEGIN_NAMESPACE_STD
void __libcpp_verbose_abort(const char* format, ...) noexcept { fail(format); }
_LIBCPP_END_NAMESPACE_STD

// Weak: the library's own may come along with another symbol of the same file.
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
