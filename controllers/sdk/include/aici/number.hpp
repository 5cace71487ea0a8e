// number.hpp - converts a number to text, for messages. (std::to_string links all of printf into a small module.)
#pragma once

#include <cstdint>
#include <string_view>

namespace aici {

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
