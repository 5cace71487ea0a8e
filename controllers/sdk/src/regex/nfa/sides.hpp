// sides.hpp - the characters beside a position, as far as assertions distinguish them.
#pragma once

#include <cstddef>
#include <vector>

#include "nfa_builder.hpp"

namespace aici::regex {

struct Side {
  bool edge = false, newline = false, word = false, ascii_word = false;
  bool operator==(const Side&) const = default;
};

struct Sides {
  static constexpr std::size_t kEdge = 0;  ///< the side beyond the text

  std::vector<Side> sides{Side{.edge = true}};
  std::vector<KindSetId> kinds{kNoKinds};  ///< the characters of each side
};

Sides find_sides(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets);

bool holds(Assertion assertion, Side left, Side right);

}  // namespace aici::regex
