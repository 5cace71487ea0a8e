// limits.hpp - every bound of the regex engine. A pattern beyond one is refused with an error that names it.
#pragma once

#include <cstdint>

namespace aici::regex {

struct Limits {
  /// Longest pattern. Parsing is linear (about 0.1 us a byte), so this bounds it to a few 10 ms.
  std::uint32_t pattern_bytes = 256 * 1024;
  /// Deepest nesting of groups and of classes: the parser needs no stack, but the passes over the tree
  /// recurse, and a controller's stack is small.
  std::uint32_t nesting = 100;
  /// States of the nondeterministic automaton: the pattern with all repetitions written out. The
  /// deterministic states are sets of these, stored as 16-bit numbers, so 65535 could not be exceeded.
  /// 12 bytes and about 0.1 us each.
  std::uint32_t nfa_states = 50'000;
  /// Kinds of characters that the pattern tells apart. One row of a deterministic state has an entry for
  /// each that has an ASCII member, and each class of the pattern is a set of them.
  std::uint32_t character_kinds = 4096;
  /// Deterministic states that one `(?until:...)` or `(?not:...)` may have: those are built at once.
  std::uint32_t eager_states = 2048;
  /// Memory of the deterministic automaton, whose states are made as they are reached. Beyond this the
  /// present mask cannot be computed. 1000 states are between 0.1 and 1 MB.
  std::uint32_t automaton_bytes = 24 << 20;
  /// Between two masks `Regex::compact` drops all states if they take more than this. Usual patterns stay
  /// below 100 kB and never meet it.
  std::uint32_t kept_bytes = 4 << 20;
};

}  // namespace aici::regex
