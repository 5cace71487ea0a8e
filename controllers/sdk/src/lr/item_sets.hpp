// item_sets.hpp - the states of an LR(1) parser as sets of items, with states merged where that is safe.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "aici/detail/hash_index.hpp"
#include "aici/detail/lr/grammar.hpp"
#include "first_sets.hpp"

namespace aici::lr {

/// A production, how much of it has been read, and the terminals that may follow it.
struct Item {
  std::uint32_t production, dot;
  Lookahead lookahead;
};

/// A state: its kernel, sorted by production and dot, and the next states by symbol.
struct ItemSet {
  std::vector<Item> kernel;
  std::map<Symbol, std::uint32_t> successors;
};

class ItemSets {
 public:
  ItemSets(const Grammar& grammar, std::uint32_t most);

  /// Builds all states; returns false if there are too many.
  bool build();
  const std::vector<ItemSet>& states() const { return states_; }
  /// Returns the kernel's items and all items with which these can begin, each production and dot once.
  std::vector<Item> closure(const ItemSet& state) const;

 private:
  void expand(std::uint32_t state);
  std::uint32_t place(std::vector<Item> kernel);
  static bool compatible(const std::vector<Item>& a, const std::vector<Item>& b);
  static std::uint32_t core_hash(const std::vector<Item>& kernel);

  const Grammar& grammar_;
  FirstSets first_;
  std::uint32_t most_;
  std::vector<std::vector<std::uint32_t>> productions_of_;  ///< by nonterminal
  std::vector<ItemSet> states_;
  /// Lists of states with the same core.
  HashIndex cores_;
  std::vector<std::vector<std::uint32_t>> same_core_;
  std::vector<std::uint32_t> queue_;
  std::vector<bool> queued_;
};

}  // namespace aici::lr
