#include "aici/detail/regex/kind_sets.hpp"

#include <algorithm>

#include "../sort.hpp"

namespace aici::regex {

KindSetId KindSets::add(std::span<const std::uint32_t> set) {
  Hasher hash;
  for (const std::uint32_t word : set) hash.add(word);
  const std::uint32_t known = ids_.find(hash.bits(), [&](std::uint32_t i) {
    return std::equal(set.begin(), set.end(), bits_.begin() + static_cast<std::ptrdiff_t>(i * words_));
  });
  if (known != HashIndex::kNone) return static_cast<KindSetId>(known);
  if (count_ > 0xffff) {
    overflow_ = true;
    return kNoKinds;
  }
  append(&bits_, set);
  ids_.insert(hash.bits(), count_);
  return static_cast<KindSetId>(count_++);
}

KindSetId KindSets::unite(KindSetId a, KindSetId b) {
  if (a == b) return a;
  std::vector<std::uint32_t> out((*this)[a].begin(), (*this)[a].end());
  for (std::size_t i = 0; i < words_; i++) out[i] |= (*this)[b][i];
  return add(out);
}

KindSetId KindSets::intersect(KindSetId a, KindSetId b) {
  std::vector<std::uint32_t> out((*this)[a].begin(), (*this)[a].end());
  for (std::size_t i = 0; i < words_; i++) out[i] &= (*this)[b][i];
  return add(out);
}

}  // namespace aici::regex
