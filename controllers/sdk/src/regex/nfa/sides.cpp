#include "sides.hpp"

#include <algorithm>

namespace aici::regex {

Sides find_sides(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets) {
  const auto has = [&](std::uint32_t index, std::uint32_t kind) {
    return index != AssertionClasses::kNone && (alphabet.kinds_of_class(index)[kind / 32] >> (kind % 32) & 1);
  };
  Sides out;
  std::vector<std::vector<std::uint32_t>> members(1);
  for (std::uint32_t kind = 1; kind < alphabet.size(); kind++) {
    const Side side{.newline = has(classes.newline, kind),
                    .word = has(classes.word, kind),
                    .ascii_word = has(classes.ascii_word, kind)};
    const auto known =
        static_cast<std::size_t>(std::find(out.sides.begin(), out.sides.end(), side) - out.sides.begin());
    if (known == out.sides.size()) {
      out.sides.push_back(side);
      members.emplace_back(alphabet.words());
    }
    members[known][kind / 32] |= 1u << (kind % 32);
  }
  for (std::size_t i = 1; i < out.sides.size(); i++) out.kinds.push_back(sets->add(members[i]));
  return out;
}

bool holds(Assertion assertion, Side left, Side right) {
  const bool ascii = is_ascii_assertion(assertion);
  const bool l = ascii ? left.ascii_word : left.word, r = ascii ? right.ascii_word : right.word;
  switch (assertion) {
    case Assertion::kTextStart: return left.edge;
    case Assertion::kTextEnd: return right.edge;
    case Assertion::kLineStart: return left.edge || left.newline;
    case Assertion::kLineEnd: return right.edge || right.newline;
    case Assertion::kWordBoundary:
    case Assertion::kAsciiWordBoundary: return l != r;
    case Assertion::kNoWordBoundary:
    case Assertion::kAsciiNoWordBoundary: return l == r;
    case Assertion::kWordStart:
    case Assertion::kAsciiWordStart: return !l && r;
    case Assertion::kWordEnd:
    case Assertion::kAsciiWordEnd: return l && !r;
    case Assertion::kWordStartHalf:
    case Assertion::kAsciiWordStartHalf: return !l;
    case Assertion::kWordEndHalf:
    case Assertion::kAsciiWordEndHalf: return !r;
  }
  return false;
}

}  // namespace aici::regex
