// limits.hpp - the limits of the regex engine, and the error of a refused pattern, which names the limit it is beyond.
#pragma once

#include <cstdint>
#include <string>

namespace aici::regex {

struct Limits {
  /// Maximum length of a pattern. Parsing is linear (about 0.1 us per byte), so it takes at most some 10 ms.
  std::uint32_t pattern_bytes = 256 * 1024;
  /// Maximum nesting of groups and of classes. The parser does not recurse, but the passes over the tree do, and a
  /// controller's stack is small.
  std::uint32_t nesting = 100;
  /// Maximum number of states of the nondeterministic automaton, which has all repetitions expanded. Deterministic
  /// states are sets of these, stored as 16-bit numbers, so 65535 is the upper bound. Each state takes 12 bytes and
  /// about 0.1 us.
  std::uint32_t nfa_states = 50'000;
  /// Maximum number of kinds of characters that the pattern distinguishes. The row of a deterministic state has an
  /// entry for each kind with an ASCII member, and each class of the pattern is a set of kinds.
  std::uint32_t character_kinds = 4096;
  /// Maximum number of deterministic states of one `(?until:...)` or `(?not:...)`, which are built eagerly.
  std::uint32_t eager_states = 2048;
  /// Maximum memory of the deterministic automaton, whose states are built lazily. Beyond it, the current mask cannot
  /// be computed. 1000 states take between 0.1 and 1 MB.
  std::uint32_t automaton_bytes = 24 << 20;
  /// Between two masks, `Regex::compact` drops all states if they take more than this. Common patterns stay below 100
  /// kB and never reach it.
  std::uint32_t kept_bytes = 4 << 20;
};

/// The reason and position of a refused pattern.
struct Error {
  std::uint32_t offset = 0;  ///< bytes of the pattern before the error
  std::uint32_t line = 1;    ///< counted from 1
  std::uint32_t column = 1;  ///< characters, counted from 1
  std::string message;       ///< the reason, and what is allowed
  bool no_text = false;      ///< the pattern is valid, but no text matches it

  /// Returns "column 5: ..."; names the line, too, if it is not the first.
  std::string text() const;
};

}  // namespace aici::regex
