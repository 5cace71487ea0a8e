// groups.hpp - a regular expression in parts, for programs that need the texts of its named groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aici/regex/regex.hpp"

namespace aici::regex {

/// A part of a pattern. Only parts with a named group in them have parts of their own.
struct Part {
  static constexpr std::uint32_t kNoMax = 0xffffffff;
  enum class Kind : std::uint8_t {
    kRegex,     ///< the texts of `regex`
    kSequence,  ///< `parts` in sequence
    kChoice,    ///< one of `parts`
    kRepeat,    ///< the only part, `min` to `max` times
    kGroup,     ///< the only part, whose text has a `name`
  };
  Kind kind = Kind::kRegex;
  std::optional<Regex> regex{};
  std::vector<Part> parts{};
  std::string name{};
  std::uint32_t min = 0, max = 0;
};

/// Reads a pattern with named groups: (?P<name>...) or (?<name>...). Without any, the part is the pattern. Returns
/// nothing and fills in `error` if the pattern is malformed or exceeds a limit, or if the parts depend on each other: `^`
/// may only be its first character then, `$` its last one, there are no word boundaries and look-arounds, and a named group is
/// not inside (?until:...) or (?not:...).
std::optional<Part> read_parts(std::string_view pattern, Error* error, const Limits& limits = {});

/// Calls `Regex::set_byte_classes` for all parts.
void set_byte_classes(Part& part, ByteClasses classes);

/// As `read_parts`, and prepares the result as `compile_or_fail` does.
Part read_parts_or_fail(std::string_view pattern, const Limits& limits = {});

}  // namespace aici::regex
