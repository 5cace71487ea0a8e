// quoted.hpp - the quoted texts of KBNF: literals, and what is in #'...'.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../front/source.hpp"

namespace aici::kbnf {

struct Quoted {
  std::string text;  ///< with its escapes replaced
  /// Where in the grammar each byte of the text comes from, and its end.
  std::vector<std::size_t> from;
};

/// Reads a text in single or double quotes. Where `is_pattern`, a backslash before a character that makes no escape of
/// KBNF stays, and is the pattern's: \d and \\d are the same.
Quoted take_quoted(front::Source& source, bool is_pattern);

}  // namespace aici::kbnf
