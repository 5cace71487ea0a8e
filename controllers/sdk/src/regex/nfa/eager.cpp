// (?until:...) and (?not:...): built by determinizing the inner pattern.
#include "../automaton/determinize.hpp"
#include "nfa_builder.hpp"

namespace aici::regex {
namespace {

constexpr const char* kTooLarge = "the automaton of this group is too large";

/// Returns the set of all characters. It is complete, since add_hidden_classes (regex.cpp) adds the class of all.
KindSetId all_kinds(const Alphabet& alphabet, KindSets* sets) {
  std::vector<std::uint32_t> bits(alphabet.words());
  for (std::uint32_t kind = 1; kind < alphabet.size(); kind++) bits[kind / 32] |= 1u << (kind % 32);
  return sets->add(bits);
}

}  // namespace

// The shortest texts of L = (all texts) R: runs the deterministic automaton of L, and stops where it accepts.
NfaId NfaBuilder::add_until(const Node& node, NfaId next) {
  NfaBuilder inner(ast_, alphabet_, limits_, &sets_, false);
  const NfaId head = inner.states_.open();
  const NfaId body = inner.add(ast_.child(node), Nfa::kMatch);
  const NfaId skip = inner.states_.kinds(all_kinds(alphabet_, &sets_), head);
  inner.states_.fill(head, inner.states_.split(body, skip));
  if (inner.failure_.message || inner.states_.overflow() || sets_.overflow()) {
    failure_ = inner.failure_.message ? inner.failure_ : BuildFailure{kTooLarge, node.offset};
    return next;
  }
  Deterministic automaton;
  if (!determinize(inner.states_.finish(head), alphabet_, &sets_, limits_.eager_states, true, &automaton)) {
    failure_ = {kTooLarge, node.offset};
    return next;
  }
  const std::vector<Deterministic::State>& from = automaton.states;
  std::vector<NfaId> entry(from.size());
  for (std::size_t i = 0; i < from.size(); i++) entry[i] = from[i].accepting ? next : states_.open();
  for (std::size_t i = 0; i < from.size(); i++) {
    if (from[i].accepting) continue;
    NfaId out = states_.kinds(kNoKinds, next);
    for (const auto& edge : from[i].edges)
      out = states_.split(states_.kinds(edge.kinds, entry[edge.target]), out);
    states_.fill(entry[i], out);
  }
  return entry[0];
}

// The deterministic automaton with accepting and other states swapped; where it led nowhere, everything is accepted.
NfaId NfaBuilder::add_not(const Node& node, NfaId next) {
  NfaBuilder inner(ast_, alphabet_, limits_, &sets_, false);
  const NfaId body = inner.add(ast_.child(node), Nfa::kMatch);
  Deterministic automaton;
  if (inner.failure_.message || inner.states_.overflow() || sets_.overflow() ||
      !determinize(inner.states_.finish(body), alphabet_, &sets_, limits_.eager_states, false, &automaton)) {
    failure_ = inner.failure_.message ? inner.failure_ : BuildFailure{kTooLarge, node.offset};
    return next;
  }
  const KindSetId all = all_kinds(alphabet_, &sets_);
  const NfaId anything = states_.open();
  states_.fill(anything, states_.split(states_.kinds(all, anything), next));

  const std::vector<Deterministic::State>& from = automaton.states;
  std::vector<NfaId> entry(from.size());
  for (NfaId& id : entry) id = states_.open();
  for (std::size_t i = 0; i < from.size(); i++) {
    std::vector<std::uint32_t> other(sets_[all].begin(), sets_[all].end());
    NfaId out = from[i].accepting ? states_.kinds(kNoKinds, next) : next;
    for (const auto& edge : from[i].edges) {
      out = states_.split(states_.kinds(edge.kinds, entry[edge.target]), out);
      for (std::size_t w = 0; w < other.size(); w++) other[w] &= ~sets_[edge.kinds][w];
    }
    out = states_.split(states_.kinds(sets_.add(other), anything), out);
    states_.fill(entry[i], out);
  }
  return entry[0];
}

}  // namespace aici::regex
