// quoted.hpp - the quoted texts of KBNF: literals, and the patterns in #'...'.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../front/source.hpp"

namespace aici::kbnf {

struct Quoted {
  std::string text;  ///< with its escapes replaced
  /// The position in the grammar of each byte of the text, and of its end.
  std::vector<std::size_t> from;
};

/// Reads a text in single or double quotes. With `is_pattern`, a backslash that begins no escape of KBNF is kept for
/// the pattern, so \d and \\d are the same.
Quoted take_quoted(front::Source& source, bool is_pattern);

}  // namespace aici::kbnf
