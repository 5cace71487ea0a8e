// The only functions of the engine that use the host.
#include "aici/host.hpp"
#include "aici/regex/groups.hpp"
#include "aici/regex/regex.hpp"
#include "aici/vocabulary.hpp"

namespace aici::regex {

namespace {

[[noreturn]] void refuse(const Error& error) { fail("the regular expression is refused at " + error.text()); }

}  // namespace

Regex compile_or_fail(std::string_view pattern, const Limits& limits) {
  Error error;
  std::optional<Regex> regex = Regex::compile(pattern, &error, limits);
  if (!regex) refuse(error);
  regex->set_byte_classes(vocabulary().classes());
  return std::move(*regex);
}

Regex until_or_fail(std::span<const std::string> stops, const Limits& limits) {
  Error error;
  std::optional<Regex> regex = Regex::until(stops, &error, limits);
  if (!regex) fail("the texts to stop at are refused: " + error.message);
  regex->set_byte_classes(vocabulary().classes());
  return std::move(*regex);
}

Part read_parts_or_fail(std::string_view pattern, const Limits& limits) {
  Error error;
  std::optional<Part> part = read_parts(pattern, &error, limits);
  if (!part) refuse(error);
  set_byte_classes(*part, vocabulary().classes());
  return std::move(*part);
}

}  // namespace aici::regex
