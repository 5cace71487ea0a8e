// ecma.hpp - a regular expression of ECMAScript, as `pattern` has it, as patterns of aici/regex over the text of a JSON
// string: each character stands as append_json_string spells it, or as it is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aici::json_schema {

inline constexpr std::uint32_t kUnlimited = 0xffffffff;

/// A character in a JSON string, or in a `plain` text, and any text of them.
const std::string& any_character(bool plain);
const std::string& any_text(bool plain);

struct Part {
  std::string text;      ///< for the whole string, without its quotes
  bool negated = false;  ///< the string must not match it
};

struct Pattern {
  /// Why it cannot be taken; empty if it can.
  std::string problem;
  /// A string matches if it matches all of them.
  std::vector<Part> parts;
  /// Does a part have assertions, so that it cannot stand in (?not:...)?
  bool assertive = false;
  /// Bounds of the number of characters; those that match may have less room than that.
  std::uint32_t min_length = 0, max_length = kUnlimited;
  /// If the pattern is a fixed number of characters around one repetition of a class: what is before, the class, what
  /// is behind, how many characters these have, and how often the class may come.
  struct Stretch {
    bool known = false;
    std::string before, unit, behind;
    std::uint32_t fixed = 0, least = 0, most = kUnlimited;

    bool is_long(std::uint32_t than) const { return least > than || (most != kUnlimited && most > than); }
  } stretch;
};

/// `plain`: of a text that has no escapes.
Pattern read_ecma(std::string_view source, bool plain);

}  // namespace aici::json_schema
