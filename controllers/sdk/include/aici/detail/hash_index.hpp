// hash_index.hpp - a hash table of numbers, for numbered items that are stored elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aici {

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
