// arrays.hpp - JSON arrays with different items, while they are read: the text of the item so far, and what is known of
// the items before it.
//
// A position is a text after the bracket that opens the array, together with the parser's state. Positions make up a
// tree by their bytes. An item counts as its hash, which is equal for equal values, whatever their spelling: so two
// different items may be taken for equal ones (with a probability of 2^-64), but never the other way round. The names of
// an object are treated in the same way: a colon outside of inner values ends an item.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/detail/hash_index.hpp"

namespace aici::cfg {

/// Returns a hash of a JSON value. Numbers that are rounded to the same double count as equal, and so do values that
/// differ only below 64 levels.
std::uint64_t hash_json(std::string_view text);

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
    return positions_.size() * sizeof(Position) + items_.size() * sizeof(Item) + ids_.bytes();
  }
  /// Copies a position of another object, with another state.
  Id copy(const Arrays& from, Id id, std::uint32_t state);

 private:
  struct Item {
    Id before;
    std::uint32_t number;
    std::uint64_t hash;
  };

  Id insert(const Position& position, bool findable);
  std::string item(Id id) const;

  std::vector<Position> positions_;
  std::vector<Item> items_;
  HashIndex ids_;
};

}  // namespace aici::cfg
