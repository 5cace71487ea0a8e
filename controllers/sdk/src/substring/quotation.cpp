#include "aici/quotation.hpp"

namespace aici {

Quotation::Quotation(std::string_view text, std::string_view end) : substrings_(text), pairs_(1) {
  if (end.empty()) return;
  for (std::size_t i = 0; i < end.size(); i++)
    places_[static_cast<std::uint8_t>(end[i])] |= std::uint64_t{1} << i;
  last_ = std::uint64_t{1} << (end.size() - 1);
}

Quotation::State Quotation::append(State state, std::uint8_t byte) {
  const Pair now = state & kPair ? pairs_[state & ~kPair] : Pair{state, 0};
  const bool may_start = now.text != initial() && substrings_.accepting(now.text);
  const std::uint64_t marks = (now.marks << 1 | (may_start ? 1 : 0)) & places_[byte];
  if (marks & last_) return kEnded;
  const Substrings::State text = substrings_.append(now.text, byte);
  return marks == 0 ? text : intern({text, marks});
}

Quotation::State Quotation::intern(Pair pair) {
  Hasher hasher;
  hasher.add(pair.text);
  hasher.add(static_cast<std::uint32_t>(pair.marks));
  hasher.add(static_cast<std::uint32_t>(pair.marks >> 32));
  std::uint32_t number = numbers_.find(hasher.bits(), [&](std::uint32_t other) {
    return pairs_[other].text == pair.text && pairs_[other].marks == pair.marks;
  });
  if (number == HashIndex::kNone) {
    number = static_cast<std::uint32_t>(pairs_.size());
    pairs_.push_back(pair);
    numbers_.insert(hasher.bits(), number);
  }
  return kPair | number;
}

}  // namespace aici
