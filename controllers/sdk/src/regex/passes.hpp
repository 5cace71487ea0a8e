// passes.hpp - the passes from a parsed pattern to a regular expression, and the automata between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/detail/regex/automaton.hpp"
#include "aici/regex/limits.hpp"
#include "aici/regex/regex.hpp"
#include "parser.hpp"

namespace aici::regex {

// regex.cpp

/// Returns the nodes in sequence that a node is, without `^` as the first one and `$` as the last. `starts` is set to
/// whether there was a `^`.
std::vector<NodeId> without_anchors(const Ast& ast, NodeId node, bool* starts);

/// Adds classes to `ast`. Returns nothing and fills in `error`, through the parser of the pattern, if it is refused.
/// `ordered`: Program::ordered.
std::optional<Regex> make_regex(Ast* ast, const Limits& limits, Parser* parser, Error* error, bool ordered = false);

/// Fails the controller with the message of a refused pattern.
[[noreturn]] void refuse(const Error& error);

// nfa.cpp

/// The reason why a pattern cannot be built, and its offset; `message` is null if it can.
struct BuildFailure {
  const char* message = nullptr;
  std::uint32_t offset = 0;
};

/// Computes an upper bound on the states of each node, with repetitions expanded.
BuildFailure check_sizes(const Ast& ast, const Limits& limits);

/// Builds the automaton of a pattern, with unresolved assertions and look-arounds. With `ordered`, what `re` prefers is
/// the first part of each split.
BuildFailure build_nfa(const Ast& ast, const Alphabet& alphabet, const Limits& limits, KindSets* sets, bool ordered,
                       Nfa* out);

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

// assertions.cpp

/// The kinds of characters that assertions distinguish. The alphabet must have classes of \w, ASCII \w and \n as far as
/// the pattern's assertions need them.
struct AssertionClasses {
  std::uint32_t word = kNone, ascii_word = kNone, newline = kNone;
  static constexpr std::uint32_t kNone = 0xffffffff;
};

/// Replaces an automaton by an equivalent one without kAssert states. Returns false if it has more than
/// `most` states.
bool resolve_assertions(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets,
                        std::uint32_t most, Nfa* nfa);

/// The characters beside a position, as far as assertions distinguish them.
struct Side {
  bool edge = false, newline = false, word = false, ascii_word = false;
  bool operator==(const Side&) const = default;
};

struct Sides {
  static constexpr std::size_t kEdge = 0;  ///< the side beyond the text

  std::vector<Side> sides{Side{.edge = true}};
  std::vector<KindSetId> kinds{kNoKinds};  ///< the characters of each side
};

Sides find_sides(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets);

bool assertion_holds(Assertion assertion, Side left, Side right);

// look.cpp

/// The same for an automaton with look-arounds, and with or without assertions.
bool resolve_looks(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets, std::uint32_t most,
                   Nfa* nfa);

// automaton.cpp

/// A set: live states of kind kKinds or kMatch. They are sorted or, if their order says which match is preferred, in that
/// order, and those after kMatch are left out.
using StateSet = std::vector<NfaId>;

/// Returns whether the text may end here.
inline bool accepts(std::span<const NfaId> set) {
  return !set.empty() && (set.front() == Nfa::kMatch || set.back() == Nfa::kMatch);
}

/// One step of the subset construction: sets of nondeterministic states and their successors.
class SubsetStepper {
 public:
  SubsetStepper(const Nfa* nfa, const KindSets* sets, std::uint32_t num_kinds, bool ordered)
      : nfa_(nfa), sets_(sets), ordered_(ordered), marks_(nfa->states.size()), group_(num_kinds) {}

  StateSet start();
  /// Returns whether the state leads to itself by each of its kinds.
  bool repeats(NfaId state);
  /// Sorts the kinds into groups: all kinds of a group lead from `set` to the same set.
  void partition(std::span<const NfaId> set);
  /// After `partition`: the group of a kind. Group 0 leads nowhere.
  std::uint32_t group(std::uint32_t kind) const { return group_[kind]; }
  std::uint32_t num_groups() const { return static_cast<std::uint32_t>(parts_.size()); }
  /// After `partition`: where a group leads.
  const StateSet& target(std::uint32_t group);
  std::size_t bytes() const { return marks_.size() * 4 + group_.size() * 4; }

 private:
  /// A group is `parent` with one more successor.
  struct Part {
    std::uint32_t parent;
    NfaId next;
  };

  void follow(NfaId state);
  const StateSet& finish();

  const Nfa* nfa_;
  const KindSets* sets_;
  bool ordered_;
  std::vector<std::uint32_t> marks_;  ///< the last walk that reached the state
  std::uint32_t walk_ = 0;
  std::vector<std::uint32_t> group_;
  std::vector<Part> parts_;
  std::vector<std::uint32_t> moved_;  ///< per group, the group that its members move to in this round, or 0
  StateSet out_;
  std::vector<NfaId> stack_;
};

/// A complete deterministic automaton over kinds, for patterns that need it eagerly. State 0 is the start.
struct Deterministic {
  struct Edge {
    KindSetId kinds;
    std::uint32_t target;
  };
  struct State {
    bool accepting = false;
    std::vector<Edge> edges;  ///< to different targets; kinds on no edge lead nowhere
  };
  std::vector<State> states;
};

/// Returns false if there are more than `most` states. With `stop`, accepting states get no edges.
bool determinize(const Nfa& nfa, const Alphabet& alphabet, KindSets* sets, std::uint32_t most, bool stop,
                 Deterministic* out);

}  // namespace aici::regex
