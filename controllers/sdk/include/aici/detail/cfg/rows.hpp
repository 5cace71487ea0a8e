// rows.hpp - the next states of states, by byte. A row has entries only for bytes that can follow, mostly few.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "aici/detail/byte_set.hpp"

namespace aici::cfg {

class Rows {
 public:
  /// The next state is not known yet. 0 is dead.
  static constexpr std::uint32_t kUnknown = 0xffffffff;

  std::uint32_t find(std::uint32_t row, std::uint8_t byte) const {
    const Row& found = rows_[row];
    const std::uint32_t word = found.bytes.word(byte >> 5), bit = 1u << (byte & 31);
    return (word & bit) != 0 ? next_[found.place(byte, word & (bit - 1))] : found.others;
  }
  /// Adds a row of unknown states. It has no entries before `narrow`.
  void add() { rows_.emplace_back(); }
  /// Returns whether the row has entries.
  bool narrowed(std::uint32_t row) const { return rows_[row].others == 0; }
  /// Makes entries for the bytes that can follow.
  void narrow(std::uint32_t row, const ByteSet& bytes) {
    Row& made = rows_[row];
    made.bytes = bytes, made.others = 0, made.first = static_cast<std::uint32_t>(next_.size());
    unsigned count = 0;
    for (unsigned i = 0; i < made.before.size(); i++) {
      made.before[i] = static_cast<std::uint8_t>(count);
      count += static_cast<unsigned>(std::popcount(bytes.word(i)));
    }
    next_.insert(next_.end(), count, kUnknown);
  }
  /// Stores the next state in an entry.
  void set(std::uint32_t row, std::uint8_t byte, std::uint32_t next) {
    const Row& found = rows_[row];
    next_[found.place(byte, found.bytes.word(byte >> 5) & ((1u << (byte & 31)) - 1))] = next;
  }

  /// Reserves memory for some thousand rows: if the arrays moved, their pages would be written again.
  void reserve() { rows_.reserve(1 << 14), next_.reserve(1 << 18); }
  void clear() { rows_.clear(), next_.clear(); }
  std::size_t bytes() const { return rows_.size() * sizeof(Row) + next_.size() * sizeof(std::uint32_t); }

 private:
  struct Row {
    ByteSet bytes;
    /// The next state after all bytes but these.
    std::uint32_t others = kUnknown;
    /// The place of its entries in `next_`, and the number of those before each 32 bytes.
    std::uint32_t first = 0;
    std::array<std::uint8_t, 8> before{};

    /// `below` has the bits of the smaller ones of 32 bytes.
    std::size_t place(std::uint8_t byte, std::uint32_t below) const {
      return first + before[byte >> 5] + static_cast<unsigned>(std::popcount(below));
    }
  };

  std::vector<Row> rows_;
  std::vector<std::uint32_t> next_;
};

}  // namespace aici::cfg
