// sort.hpp - sorts the two kinds of lists in the engine. (std::sort takes 7 kB of code for each.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aici::regex {

void sort_small(std::vector<std::uint16_t>* items);

/// Sorts by the upper half of each item, which must be below 2^24. Equal items keep their order.
void sort_by_codepoint(std::vector<std::uint64_t>* items);

/// Appends items. (vector::insert makes a kilobyte of code for each type.)
template <class T>
void append(std::vector<T>* to, std::span<const T> items) {
  const std::size_t size = to->size();
  to->resize(size + items.size());
  for (std::size_t i = 0; i < items.size(); i++) (*to)[size + i] = items[i];
}

}  // namespace aici::regex
