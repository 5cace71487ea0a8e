#include "aici/utf8.hpp"

#include "../regex/unicode.hpp"

namespace aici {

std::size_t utf8_length(std::string_view text) {
  for (std::size_t at = 0, start = 0; at < text.size(); start = at)
    if (regex::decode_utf8(text, &at) == regex::kInvalidUtf8) return start;
  return text.size();
}

}  // namespace aici
