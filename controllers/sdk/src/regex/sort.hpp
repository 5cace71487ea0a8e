// sort.hpp - sorts the two kinds of lists in the engine. (std::sort takes 7 kB of code for each, and these functions
// would as well if they were inlined.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace aici::regex {

/// Stable radix sort by the bytes of the key. Short lists use insertion sort, since counting would cost more.
template <class T, class KeyOf>
void sort_by_key(std::vector<T>* items, unsigned key_bytes, KeyOf key_of) {
  constexpr std::size_t kFew = 40;
  std::vector<T>& list = *items;
  if (list.size() <= kFew) {
    for (std::size_t i = 1; i < list.size(); i++) {
      const T item = list[i];
      std::size_t at = i;
      for (; at > 0 && key_of(list[at - 1]) > key_of(item); at--) list[at] = list[at - 1];
      list[at] = item;
    }
    return;
  }
  std::vector<T> sorted(list.size());
  for (unsigned byte = 0; byte < key_bytes; byte++) {
    const auto digit = [&](T item) { return static_cast<std::uint8_t>(key_of(item) >> (8 * byte)); };
    std::uint32_t place[257] = {};
    for (const T item : list) place[digit(item) + 1]++;
    for (int i = 1; i < 256; i++) place[i] += place[i - 1];
    for (const T item : list) sorted[place[digit(item)]++] = item;
    list.swap(sorted);
  }
}

[[gnu::noinline]] inline void sort_small(std::vector<std::uint16_t>* items) {
  sort_by_key(items, 2, [](std::uint16_t item) { return static_cast<std::uint32_t>(item); });
}

/// Sorts by the upper half of each item, which must be below 2^24. Equal items keep their order.
[[gnu::noinline]] inline void sort_by_codepoint(std::vector<std::uint64_t>* items) {
  sort_by_key(items, 3, [](std::uint64_t item) { return static_cast<std::uint32_t>(item >> 32); });
}

/// Appends items. (vector::insert makes a kilobyte of code for each type.)
template <class T>
void append(std::vector<T>* to, std::span<const T> items) {
  const std::size_t size = to->size();
  to->resize(size + items.size());
  for (std::size_t i = 0; i < items.size(); i++) (*to)[size + i] = items[i];
}

}  // namespace aici::regex
