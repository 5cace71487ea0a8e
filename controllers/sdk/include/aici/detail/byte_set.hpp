// byte_set.hpp - a set of bytes.
#pragma once

#include <cstdint>

namespace aici {

class ByteSet {
 public:
  void add(std::uint8_t byte) { words_[byte >> 5] |= 1u << (byte & 31); }
  bool has(std::uint8_t byte) const { return words_[byte >> 5] >> (byte & 31) & 1; }
  bool empty() const {
    std::uint32_t any = 0;
    for (std::uint32_t word : words_) any |= word;
    return any == 0;
  }

 private:
  std::uint32_t words_[8] = {};
};

}  // namespace aici
