// The services of the host, and how a controller fails and failures are caught.
#include "aici/host.hpp"

#include <unistd.h>
#include <utility>

#include "aici/warmable.hpp"

namespace aici {

void stop() { aici_stop(); }

void log(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::vector<TokenId> tokenize(std::string_view bytes) {
  const std::uint32_t count = aici_tokenize(bytes.data(), static_cast<std::uint32_t>(bytes.size()));
  if (count == AICI_NO_TOKENS) return {};
  std::vector<TokenId> tokens(count);
  aici_read(AICI_TOKENIZED, 0, tokens.data(), static_cast<std::uint32_t>(tokens.size() * sizeof(TokenId)));
  return tokens;
}

std::uint32_t capability(Capability which) { return aici_capability(static_cast<std::uint32_t>(which)); }

std::uint32_t call(std::string_view name, std::string_view arguments) {
  return aici_call(name.data(), static_cast<std::uint32_t>(name.size()), arguments.data(),
                   static_cast<std::uint32_t>(arguments.size()));
}

std::string call_result(std::uint32_t call) { return AICI_CALL_RESULT + std::to_string(call); }

std::optional<Variable> get_variable(std::string_view name) {
  std::uint32_t size = 0;
  const std::uint32_t version = aici_var_get(name.data(), static_cast<std::uint32_t>(name.size()), &size);
  if (version == 0) return std::nullopt;
  Variable variable{version, std::string(size, '\0')};
  aici_read(AICI_VALUE, 0, variable.value.data(), size);
  return variable;
}

static std::uint32_t write_variable(std::string_view name, std::string_view value, std::uint32_t op,
                                    std::uint32_t version) {
  return aici_var_write(name.data(), static_cast<std::uint32_t>(name.size()), value.data(),
                        static_cast<std::uint32_t>(value.size()), op, version);
}

std::uint32_t set_variable(std::string_view name, std::string_view value) {
  return write_variable(name, value, AICI_SET, AICI_ANY_VERSION);
}

std::uint32_t append_variable(std::string_view name, std::string_view value) {
  return write_variable(name, value, AICI_APPEND, AICI_ANY_VERSION);
}

bool set_variable_if(std::string_view name, std::string_view value, std::uint32_t version) {
  return write_variable(name, value, AICI_SET, version) != 0;
}

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
