// kind_sets.hpp - sets of character kinds, each stored once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/detail/hash_index.hpp"

namespace aici::regex {

using KindSetId = std::uint16_t;
inline constexpr KindSetId kNoKinds = 0;

class KindSets {
 public:
  explicit KindSets(std::size_t words) : words_(words) {
    std::vector<std::uint32_t> none(words);
    add(none);
  }

  /// Returns the number of a set of kinds, given as a bit set; kNoKinds beyond 65535 sets (`overflow`).
  KindSetId add(std::span<const std::uint32_t> set);
  KindSetId unite(KindSetId a, KindSetId b);
  KindSetId intersect(KindSetId a, KindSetId b);
  bool overflow() const { return overflow_; }

  std::span<const std::uint32_t> operator[](KindSetId set) const {
    return {bits_.data() + set * words_, words_};
  }

  /// Calls visit(kind) for each member in order.
  template <class Visit>
  void each(KindSetId set, Visit visit) const {
    for (std::size_t i = 0; i < words_; i++)
      for (std::uint32_t word = bits_[set * words_ + i]; word; word &= word - 1)
        visit(static_cast<std::uint32_t>(i * 32) + static_cast<std::uint32_t>(__builtin_ctz(word)));
  }

  std::size_t bytes() const { return bits_.size() * 4 + ids_.bytes(); }

 private:
  std::size_t words_;
  std::vector<std::uint32_t> bits_;
  HashIndex ids_;
  std::uint32_t count_ = 0;
  bool overflow_ = false;
};

}  // namespace aici::regex
