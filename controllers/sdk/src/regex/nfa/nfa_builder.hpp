// nfa_builder.hpp - builds the nondeterministic automaton of a parsed pattern.
#pragma once

#include <cstdint>
#include <vector>

#include "aici/detail/regex/alphabet.hpp"
#include "aici/detail/regex/ast.hpp"
#include "aici/detail/regex/nfa.hpp"
#include "aici/regex/limits.hpp"

namespace aici::regex {

/// Why a pattern cannot be built, and at which offset; `message` null if it can.
struct BuildFailure {
  const char* message = nullptr;
  std::uint32_t offset = 0;
};

/// Computes an upper bound on the states of each node, with repetitions expanded (nfa_size.cpp).
BuildFailure check_sizes(const Ast& ast, const Limits& limits);

/// The kinds of characters that assertions tell apart. Classes of \w, ASCII \w and \n must be in the alphabet
/// as far as the pattern's assertions ask for them.
struct AssertionClasses {
  std::uint32_t word = kNone, ascii_word = kNone, newline = kNone;
  static constexpr std::uint32_t kNone = 0xffffffff;
};

/// An equal automaton without kAssert states (assertions.cpp). False: more than `most` states.
bool resolve_assertions(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets,
                        std::uint32_t most, Nfa* nfa);

class NfaBuilder {
 public:
  NfaBuilder(const Ast& ast, const Alphabet& alphabet, const Limits& limits, KindSets* sets)
      : ast_(ast), alphabet_(alphabet), limits_(limits), sets_(*sets), states_(sets, kMostStates) {}

  /// The automaton of a node, assertions unresolved.
  BuildFailure build(NodeId root, Nfa* out);

 private:
  /// More than Limits::nfa_states allows, since some states are made on the way and dropped.
  static constexpr std::uint32_t kMostStates = 0xffff;

  NfaId add(NodeId node, NfaId next);
  NfaId add_repeat(const Node& node, NfaId next);
  template <class AddOne>
  NfaId add_copies(std::uint32_t count, NfaId next, AddOne add_one);
  // eager.cpp
  NfaId add_until(const Node& node, NfaId next);
  NfaId add_not(const Node& node, NfaId next);

  const Ast& ast_;
  const Alphabet& alphabet_;
  const Limits& limits_;
  KindSets& sets_;
  NfaStates states_;
  BuildFailure failure_;
};

}  // namespace aici::regex
