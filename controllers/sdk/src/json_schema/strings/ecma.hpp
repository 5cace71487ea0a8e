// ecma.hpp - converts a regular expression of ECMAScript, as in `pattern`, to a pattern of aici/regex. It matches the
// text of a JSON string, with characters as append_json_string writes them, or a plain text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace aici::json_schema {

inline constexpr std::uint32_t kUnlimited = 0xffffffff;

/// Return a pattern for any character of a JSON string or of a `plain` text, and for any sequence of such characters.
const std::string& any_character(bool plain);
const std::string& any_text(bool plain);

struct Pattern {
  /// Why the expression is not supported; empty if it is.
  std::string problem;
  /// For the whole string, without its quotes.
  std::string text;
  /// Whether it has assertions or look-arounds, so that it cannot be inside (?not:...).
  bool assertive = false;
  /// Bounds on the number of characters of a match. The actual bounds may be narrower.
  std::uint32_t min_length = 0, max_length = kUnlimited;
  /// Set if the pattern is a fixed number of characters around one repetition of a class: the part before it, the
  /// class, the part after it, the fixed number of characters, and the bounds of the repetition.
  struct Stretch {
    bool known = false;
    std::string before, unit, behind;
    std::uint32_t fixed = 0, least = 0, most = kUnlimited;

    bool is_long(std::uint32_t than) const { return least > than || (most != kUnlimited && most > than); }
  } stretch;
};

/// `plain`: for a text without escapes.
Pattern read_ecma(std::string_view source, bool plain);

}  // namespace aici::json_schema
