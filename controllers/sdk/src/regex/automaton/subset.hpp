// subset.hpp - one step of the subset construction: sets of nondeterministic states and their successors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aici/detail/regex/kind_sets.hpp"
#include "aici/detail/regex/nfa.hpp"

namespace aici::regex {

/// A set: live states of kind kKinds or kMatch. They are sorted or, if their order says which match is preferred, in that
/// order, and those behind kMatch are left out.
using StateSet = std::vector<NfaId>;

/// Returns whether the text may end here.
inline bool accepts(std::span<const NfaId> set) {
  return !set.empty() && (set.front() == Nfa::kMatch || set.back() == Nfa::kMatch);
}

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

}  // namespace aici::regex
