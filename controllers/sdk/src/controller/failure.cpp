// How a controller fails, and how failures are caught.
#include <utility>

#include "aici/host.hpp"
#include "aici/warmable.hpp"

namespace aici {

namespace {

constinit FailHandler the_handler = nullptr;
/// Number of warmable objects that existed when the outermost handler was set.
constinit std::uint32_t num_kept = 0;

void tell_handler(const std::string_view& message) {
  // cleared first, since the handler may fail itself
  const FailHandler handler = std::exchange(the_handler, nullptr);
  if (handler == nullptr) return;
  detail::WarmableList::forget_after(num_kept);
  handler(message);
}

}  // namespace

namespace detail {
/// Null until a handler is set, so that controllers without handlers do not contain the code for them. (Not static, or
/// a compiler that sees every value of this pointer would inline that code into `fail`.)
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

/// Forgets newer objects. One that was being constructed when the failure occurred has no virtual functions of its own
/// yet. Objects in abandoned frames are still intact here.
void detail::WarmableList::forget_after(std::uint32_t number) {
  while (newest != nullptr && newest->number_ > number) newest = newest->next_;
}

}  // namespace aici
