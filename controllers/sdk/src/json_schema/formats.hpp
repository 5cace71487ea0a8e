// formats.hpp - what `format` says about a string, as patterns of ECMAScript.
#pragma once

#include <string_view>

namespace aici::json_schema {

struct Format {
  std::string_view name;
  /// Empty: it says nothing that a text could break.
  std::string_view pattern;
  /// What a string must not match besides; empty if there is nothing.
  std::string_view unlike = {};
};

/// Null if there is none of this name.
const Format* find_format(std::string_view name);

}  // namespace aici::json_schema
