// nfa_builder.hpp - builds the nondeterministic automaton of a parsed pattern.
#pragma once

#include <cstdint>
#include <vector>

#include "aici/detail/regex/alphabet.hpp"
#include "aici/detail/regex/ast.hpp"
#include "aici/detail/regex/nfa.hpp"
#include "aici/regex/limits.hpp"

namespace aici::regex {

/// The reason why a pattern cannot be built, and its offset; `message` is null if it can.
struct BuildFailure {
  const char* message = nullptr;
  std::uint32_t offset = 0;
};

/// Maximum number of look-behinds. Each runs beside the whole text.
inline constexpr std::uint16_t kMaxBehinds = 64;

/// Computes an upper bound on the states of each node, with repetitions expanded (nfa_size.cpp).
BuildFailure check_sizes(const Ast& ast, const Limits& limits);

/// The kinds of characters that assertions distinguish. The alphabet must have classes of \w, ASCII \w and \n as far as
/// the pattern's assertions need them.
struct AssertionClasses {
  std::uint32_t word = kNone, ascii_word = kNone, newline = kNone;
  static constexpr std::uint32_t kNone = 0xffffffff;
};

/// Replaces an automaton by an equivalent one without kAssert states (assertions.cpp). Returns false if it has more
/// than `most` states.
bool resolve_assertions(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets,
                        std::uint32_t most, Nfa* nfa);

/// The same for an automaton with look-arounds, and with or without assertions (look.cpp).
bool resolve_looks(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets, std::uint32_t most,
                   Nfa* nfa);

class NfaBuilder {
 public:
  /// With `ordered`, what `re` prefers is the first part of each split.
  NfaBuilder(const Ast& ast, const Alphabet& alphabet, const Limits& limits, KindSets* sets, bool ordered)
      : ast_(ast), alphabet_(alphabet), limits_(limits), sets_(*sets), ordered_(ordered), states_(sets, kMaxStates) {}

  /// Builds the automaton of a node, with unresolved assertions and look-arounds.
  BuildFailure build(NodeId root, Nfa* out);

 private:
  /// More than Limits::nfa_states allows, since some states are made temporarily.
  static constexpr std::uint32_t kMaxStates = 0xffff;

  NfaId add(NodeId node, NfaId next);
  NfaId add_look(NodeId id, NfaId next);
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
  bool ordered_;
  NfaStates states_;
  struct Look {
    std::uint16_t number = 0;
    NfaId body = Nfa::kMatch;  ///< kMatch: not built yet
  };
  std::vector<Look> looks_;  ///< per node, if there are any: copies of a look-around share its body
  std::uint16_t num_behinds_ = 0;
  BuildFailure failure_;
};

}  // namespace aici::regex
