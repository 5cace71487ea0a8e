// How a controller fails, and how that is caught.
#include <utility>

#include "aici/host.hpp"
#include "aici/warmable.hpp"

namespace aici {

namespace {

constinit FailHandler the_handler = nullptr;
/// Of what is warmable, what was there when the outermost handler was set.
constinit std::uint32_t num_kept = 0;

void tell_handler(const std::string_view& message) {
  // taken away first: it may fail itself
  const FailHandler handler = std::exchange(the_handler, nullptr);
  if (handler == nullptr) return;
  detail::WarmableList::forget_after(num_kept);
  handler(message);
}

}  // namespace

namespace detail {
/// Null while no handler has ever been set: controllers that catch nothing do not carry what is needed for it. (Not
/// static: a compiler that sees all that it can be puts that into `fail`.)
constinit void (*tell)(const std::string_view& message) = nullptr;
}  // namespace detail

void fail(std::string_view message) {
  if (detail::tell != nullptr) detail::tell(message);
  aici_fail(message.data(), static_cast<std::uint32_t>(message.size()));
}

FailHandler catch_failures(FailHandler handler) {
  detail::tell = tell_handler;
  if (the_handler == nullptr) num_kept = detail::WarmableList::count;
  return std::exchange(the_handler, handler);
}

/// What lies in frames that are left is still whole here. What was being made has no way to its own functions.
void detail::WarmableList::forget_after(std::uint32_t number) {
  while (newest != nullptr && newest->number_ > number) newest = newest->next_;
}

}  // namespace aici
