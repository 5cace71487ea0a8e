// text.hpp - the lines of an argument, the check of UTF-8, and numbers in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aici {

/// Returns the lines of a text, including empty ones, without their final `\n`, which the last line may lack.
std::vector<std::string> lines(std::string_view text);

/// Returns the length in bytes of the longest prefix that is well-formed UTF-8.
std::size_t utf8_length(std::string_view text);

/// Converts a number to text, for messages. (std::to_string links all of printf into a small module.)
class Number {
 public:
  explicit Number(std::uint32_t value) {
    do digits_[--first_] = static_cast<char>('0' + value % 10);
    while (value /= 10);
  }
  std::string_view text() const { return {digits_ + first_, sizeof digits_ - first_}; }

 private:
  char digits_[10];
  std::uint32_t first_ = sizeof digits_;
};

}  // namespace aici
