// utf8.hpp - validates UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace aici {

/// Returns the length in bytes of the longest prefix that is well-formed UTF-8.
std::size_t utf8_length(std::string_view text);

}  // namespace aici
