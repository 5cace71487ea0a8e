// states.hpp - what the parser keeps of its states: their next states by byte, and the items of arrays that are read.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/detail/byte_set.hpp"
#include "aici/detail/hash_index.hpp"

namespace aici::cfg {

/// The next states of states, by byte. A row has entries only for bytes that can follow, mostly few.
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

/// Returns a hash of a JSON value. Numbers that are rounded to the same double count as equal, and so do values that
/// differ only below 64 levels.
std::uint64_t hash_json(std::string_view text);

/// JSON arrays with different items, while they are read: the text of the item so far, and what is known of the items
/// before it.
///
/// A position is a text after the bracket that opens the array, together with the parser's state. Positions make up a
/// tree by their bytes. An item counts as its hash, which is equal for equal values, whatever their spelling: so two
/// different items may be taken for equal ones (with a probability of 2^-64), but never the other way round. The names
/// of an object are treated in the same way: a colon outside of inner values ends an item.
class Arrays {
 public:
  /// The number of a position.
  using Id = std::uint32_t;
  static constexpr Id kNone = 0xffffffff;
  enum class Life : std::uint8_t { kUnknown, kAlive, kDead };

  struct Position {
    Id before;
    std::uint32_t state;     ///< of the parser
    Id items = kNone;        ///< the last of the items before this one
    std::uint32_t size = 0;  ///< number of bytes since the item's begin; 0xffffffff in the value of a property
    std::uint32_t depth = 0;
    std::uint8_t byte = 0;
    bool quoted = false, escaped = false;
    bool left = false;  ///< whether the array has ended
    Life life = Life::kUnknown;
  };

  /// Returns the position at the beginning of an array.
  Id begin(std::uint32_t state);
  /// Returns the position after a byte if it is known, or kNone.
  Id known(Id from, std::uint8_t byte) const;
  /// Adds the position after a byte. It is dead if an item ends there that the array already has.
  Id add(Id from, std::uint8_t byte, std::uint32_t state);
  /// Returns whether an item ends with the last byte before this position.
  bool item_ended(Id id) const { return at(id).items != kNone && at(id).size == 0; }

  Position& at(Id id) { return positions_[id]; }
  const Position& at(Id id) const { return positions_[id]; }
  /// Number of items before this one.
  std::uint32_t count(Id id) const { return at(id).items == kNone ? 0 : items_[at(id).items].number; }

  std::size_t size() const { return positions_.size(); }
  std::size_t bytes() const {
    return positions_.size() * sizeof(Position) + items_.size() * sizeof(Item) + texts_.size() + ids_.bytes();
  }
  /// Returns the text of the item so far.
  std::string item(Id id) const;
  /// Calls `visit` with the text of each item before this one.
  template <class Visit>
  void each_item(Id id, Visit visit) const {
    for (Id item = at(id).items; item != kNone; item = items_[item].before)
      visit(std::string_view(texts_).substr(items_[item].first, items_[item].size));
  }
  /// Copies a position of another object, with another state.
  Id copy(const Arrays& from, Id id, std::uint32_t state);

 private:
  struct Item {
    Id before;
    std::uint32_t number;
    std::uint64_t hash;
    /// The place of its text in `texts_`.
    std::uint32_t first, size;
  };

  Id insert(const Position& position, bool findable);
  Id add_item(Id before, std::uint64_t hash, std::string_view text);

  std::vector<Position> positions_;
  std::vector<Item> items_;
  std::string texts_;
  HashIndex ids_;
};

}  // namespace aici::cfg
