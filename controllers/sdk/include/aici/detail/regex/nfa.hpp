// nfa.hpp - the nondeterministic automaton over kinds of characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aici/detail/regex/ast.hpp"
#include "aici/detail/regex/kind_sets.hpp"

namespace aici::regex {

using NfaId = std::uint16_t;

struct NfaState {
  enum class Op : std::uint8_t {
    kMatch,      ///< the text may end here
    kKinds,      ///< a character of the set `kinds`, then `out`
    kSplit,      ///< `out` or `alt`
    kAssert,     ///< `assertion` holds here, then `out`
    kAhead,      ///< a kLookEnd can be reached from `alt`, then `out`
    kNotAhead,   ///< none can be reached, then `out`
    kBehind,     ///< the kLookEnd of this number has been reached from `alt`, then `out`
    kNotBehind,  ///< it has not, then `out`
    kLookEnd,    ///< the end of a look-behind, or of a look-ahead if its number is 0
  };
  /// The number of a look-behind is in `kinds`. They are numbered from 1, inner ones after outer ones.
  std::uint16_t look() const { return kinds; }
  Op op;
  Assertion assertion = Assertion::kTextStart;
  KindSetId kinds = kNoKinds;
  NfaId out = 0, alt = 0;
  bool operator==(const NfaState&) const = default;
};

/// State 0 is the only kMatch. After `trim`, a state is live if a match can be reached from it, or the end of the
/// look-around that it belongs to. So without look-arounds, a set of states can reach a match if and only if it has a
/// live state.
struct Nfa {
  static constexpr NfaId kMatch = 0;

  std::vector<NfaState> states;
  std::vector<bool> live;
  NfaId start = 0;

  /// Computes the live states. States with an empty set of kinds are dead.
  void trim();
};

/// Builds states from the end of the text to its start. Equal states are built once, so common suffixes are shared.
class NfaStates {
 public:
  NfaStates(KindSets* sets, std::uint32_t most);

  NfaId kinds(KindSetId set, NfaId next);
  NfaId split(NfaId a, NfaId b);
  NfaId assertion(Assertion assertion, NfaId next);
  NfaId look(NfaState::Op op, std::uint16_t look, NfaId body, NfaId next);
  NfaId look_end(std::uint16_t look);
  /// Adds a state that is filled in later, for loops.
  NfaId open();
  void fill(NfaId state, NfaId target) {
    states_[state] = {.op = NfaState::Op::kSplit, .out = target, .alt = target};
  }

  const NfaState& operator[](NfaId id) const { return states_[id]; }
  std::size_t size() const { return states_.size(); }
  /// Returns whether the states from `middle` on repeat those from `first` to `middle`, with references shifted by the
  /// distance.
  bool is_copy(std::size_t first, std::size_t middle) const;
  /// Adds further copies of the states from `middle` on, with references to `first` and beyond shifted.
  void copy(std::size_t first, std::size_t middle, std::uint32_t count);
  /// Whether more than `most` states were needed; the result is then unusable.
  bool overflow() const { return overflow_; }
  Nfa finish(NfaId start);

 private:
  NfaId add(const NfaState& state);
  bool joins(NfaId a, NfaId b) const;

  KindSets* sets_;
  std::uint32_t most_;
  std::vector<NfaState> states_;
  HashIndex ids_;
  bool overflow_ = false;
};

}  // namespace aici::regex
