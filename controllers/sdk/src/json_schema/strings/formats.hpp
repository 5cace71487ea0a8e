// formats.hpp - the formats of `format`: of strings, as patterns of ECMAScript, and of numbers.
#pragma once

#include <string_view>

namespace aici::json_schema {

struct Format {
  std::string_view name;
  /// Empty if every string is allowed.
  std::string_view pattern;
  /// For numbers: the bounds of an integer; empty if the format is not about numbers.
  std::string_view low = {}, high = {};

  bool of_integers() const { return !low.empty(); }
};

/// Returns null if there is no format of this name.
const Format* find_format(std::string_view name);
/// Returns the known format of which an unknown name looks like a misspelling; empty if there is none.
std::string_view similar_format(std::string_view name);

}  // namespace aici::json_schema
