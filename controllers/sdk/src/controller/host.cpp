#include "aici/host.hpp"

#include <unistd.h>

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

}  // namespace aici
