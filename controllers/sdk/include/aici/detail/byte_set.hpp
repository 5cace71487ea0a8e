// byte_set.hpp - a set of bytes.
#pragma once

#include <cstdint>

namespace aici {

class ByteSet {
 public:
  void add(std::uint8_t byte) { words_[byte >> 5] |= 1u << (byte & 31); }
  /// Adds the bytes from 0x80 on.
  void add_beyond_ascii() {
    for (unsigned i = 4; i < 8; i++) words_[i] = ~0u;
  }
  static ByteSet all() {
    ByteSet bytes;
    for (std::uint32_t& word : bytes.words_) word = ~0u;
    return bytes;
  }
  void add(const ByteSet& other) {
    for (unsigned i = 0; i < 8; i++) words_[i] |= other.words_[i];
  }
  /// Returns the other bytes.
  ByteSet operator~() const {
    ByteSet others;
    for (unsigned i = 0; i < 8; i++) others.words_[i] = ~words_[i];
    return others;
  }
  unsigned size() const {
    unsigned count = 0;
    for (const std::uint32_t word : words_) count += static_cast<unsigned>(__builtin_popcount(word));
    return count;
  }
  bool is_most() const { return size() > 128; }
  /// The bits of the bytes from 32 * i on.
  std::uint32_t word(unsigned i) const { return words_[i]; }
  bool has(std::uint8_t byte) const { return words_[byte >> 5] >> (byte & 31) & 1; }
  template <class Visit>
  void for_each(Visit visit) const {
    for (unsigned i = 0; i < 8; i++)
      for (std::uint32_t left = words_[i]; left != 0; left &= left - 1)
        visit(static_cast<std::uint8_t>(32 * i + static_cast<unsigned>(__builtin_ctz(left))));
  }
  bool empty() const {
    std::uint32_t any = 0;
    for (std::uint32_t word : words_) any |= word;
    return any == 0;
  }

 private:
  std::uint32_t words_[8] = {};
};

}  // namespace aici
