// byte_set.hpp - a set of bytes, and the search for a byte in a short array.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

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

namespace detail {

/// Returns the first of `bytes[0..count)` that is `byte`, or `count`; compares eight bytes at a time. Up to 7
/// bytes after them are read too.
inline std::uint32_t find_byte(const std::uint8_t* bytes, std::uint32_t count, std::uint8_t byte) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHighBits = 0x8080808080808080;
  const std::uint64_t wanted = kOnes * byte;
  for (std::uint32_t at = 0; at < count; at += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes + at, sizeof eight);
    eight ^= wanted;
    // The lowest of these bits is that of the first byte that is zero now; higher ones may be wrong.
    if (const std::uint64_t zeros = (eight - kOnes) & ~eight & kHighBits) {
      at += static_cast<std::uint32_t>(std::countr_zero(zeros)) / 8;
      return at < count ? at : count;
    }
  }
  return count;
}

}  // namespace detail

}  // namespace aici
