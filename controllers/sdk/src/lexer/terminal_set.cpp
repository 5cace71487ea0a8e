#include "aici/detail/lexer/terminal_set.hpp"

#include <algorithm>

namespace aici::lexer {

std::uint32_t TerminalSets::intern(std::span<const std::uint32_t> set) {
  Hasher hash;
  for (std::uint32_t word : set) hash.add(word);
  const auto same = [&](std::uint32_t i) { return std::ranges::equal((*this)[i], set); };
  std::uint32_t number = ids_.find(hash.bits(), same);
  if (number != HashIndex::kNone) return number;
  number = static_cast<std::uint32_t>(arena_.size() / words_);
  ids_.insert(hash.bits(), number);
  arena_.insert(arena_.end(), set.begin(), set.end());
  return number;
}

bool TerminalSets::meet(std::uint32_t a, std::uint32_t b) const {
  const std::uint32_t *x = arena_.data() + a * words_, *y = arena_.data() + b * words_;
  for (std::size_t i = 0; i < words_; i++)
    if (x[i] & y[i]) return true;
  return false;
}

}  // namespace aici::lexer
