// containers.hpp - a set of bytes, the search for a byte in a short array, and a hash table of numbers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

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

/// Mixes words into a hash; all bits of the result are well mixed.
class Hasher {
 public:
  void add(std::uint32_t word) { state_ = (state_ ^ word) * 0x9E3779B97F4A7C15ull, state_ ^= state_ >> 29; }
  std::uint32_t bits() const { return static_cast<std::uint32_t>(state_ ^ (state_ >> 32)); }

 private:
  std::uint64_t state_ = 0x243F6A8885A308D3ull;
};

/// Open addressing over (hash, number) pairs; 8 bytes a slot, at most two thirds full.
class HashIndex {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;

  /// The number under `hash` for which `same(number)` holds, or kNone.
  template <class Same>
  std::uint32_t find(std::uint32_t hash, Same same) const {
    if (slots_.empty()) return kNone;
    for (std::size_t i = hash & mask();; i = (i + 1) & mask()) {
      if (slots_[i].number == kNone) return kNone;
      if (slots_[i].hash == hash && same(slots_[i].number)) return slots_[i].number;
    }
  }

  void insert(std::uint32_t hash, std::uint32_t number) {
    if (3 * (count_ + 1) > 2 * slots_.size()) grow();
    place({hash, number});
    count_++;
  }

  void clear() { slots_.clear(), count_ = 0; }
  std::size_t bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    std::uint32_t hash, number;
  };

  std::size_t mask() const { return slots_.size() - 1; }
  void place(Slot slot) {
    std::size_t i = slot.hash & mask();
    while (slots_[i].number != kNone) i = (i + 1) & mask();
    slots_[i] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size(), Slot{0, kNone});
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.number != kNone) place(slot);
  }

  std::vector<Slot> slots_;
  std::size_t count_ = 0;
};

}  // namespace aici
