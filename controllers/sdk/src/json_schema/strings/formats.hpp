// formats.hpp - what `format` says: about strings, as patterns of ECMAScript, and about numbers.
#pragma once

#include <string_view>

namespace aici::json_schema {

struct Format {
  std::string_view name;
  /// Empty: it says nothing that a text could break.
  std::string_view pattern;
  /// What a string must not match besides; empty if there is nothing.
  std::string_view unlike = {};
  /// Of numbers: they are integers from one to the other; empty if it says nothing about them.
  std::string_view low = {}, high = {};

  bool of_integers() const { return !low.empty(); }
};

/// Null if there is none of this name.
const Format* find_format(std::string_view name);

}  // namespace aici::json_schema
