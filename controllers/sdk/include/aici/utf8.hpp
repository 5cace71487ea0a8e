// utf8.hpp - is this UTF-8?
#pragma once

#include <cstddef>
#include <string_view>

namespace aici {

/// The bytes before the first that is no well-formed UTF-8; all of them if there is none.
std::size_t utf8_length(std::string_view text);

}  // namespace aici
