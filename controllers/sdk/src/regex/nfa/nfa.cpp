#include "aici/detail/regex/nfa.hpp"

#include <algorithm>

namespace aici::regex {

using Op = NfaState::Op;

NfaStates::NfaStates(KindSets* sets, std::uint32_t most) : sets_(sets), most_(std::min(most, 0xffffu)) {
  states_.push_back({.op = Op::kMatch});
}

NfaId NfaStates::add(const NfaState& state) {
  Hasher hash;
  hash.add(static_cast<std::uint32_t>(state.op) | static_cast<std::uint32_t>(state.assertion) << 8 |
           static_cast<std::uint32_t>(state.kinds) << 16);
  hash.add(state.out | static_cast<std::uint32_t>(state.alt) << 16);
  const std::uint32_t known = ids_.find(hash.bits(), [&](std::uint32_t id) { return states_[id] == state; });
  if (known != HashIndex::kNone) return static_cast<NfaId>(known);
  const NfaId id = open();
  states_[id] = state;
  ids_.insert(hash.bits(), id);
  return id;
}

NfaId NfaStates::open() {
  if (states_.size() < most_)
    states_.push_back({.op = Op::kSplit});
  else
    overflow_ = true;
  return static_cast<NfaId>(states_.size() - 1);
}

NfaId NfaStates::kinds(KindSetId set, NfaId next) { return add({.op = Op::kKinds, .kinds = set, .out = next}); }

NfaId NfaStates::assertion(Assertion assertion, NfaId next) {
  return add({.op = Op::kAssert, .assertion = assertion, .out = next});
}

NfaId NfaStates::look(Op op, std::uint16_t look, NfaId body, NfaId next) {
  return add({.op = op, .kinds = look, .out = next, .alt = body});
}

NfaId NfaStates::look_end(std::uint16_t look) { return add({.op = Op::kLookEnd, .kinds = look}); }

bool NfaStates::joins(NfaId a, NfaId b) const {
  return states_[a].op == Op::kKinds && states_[b].op == Op::kKinds && states_[a].out == states_[b].out;
}

NfaId NfaStates::split(NfaId a, NfaId b) {
  const auto leads_nowhere = [this](NfaId id) {
    return states_[id].op == Op::kKinds && states_[id].kinds == kNoKinds;
  };
  if (a == b || leads_nowhere(b)) return a;
  if (leads_nowhere(a)) return b;
  // Two characters with the same continuation become one character of the united set.
  if (joins(a, b)) return kinds(sets_->unite(states_[a].kinds, states_[b].kinds), states_[a].out);
  if (states_[b].op == Op::kSplit && joins(a, states_[b].out)) {
    const NfaId rest = states_[b].alt;
    return split(split(a, states_[b].out), rest);
  }
  return add({.op = Op::kSplit, .out = a, .alt = b});
}

bool NfaStates::is_copy(std::size_t first, std::size_t middle) const {
  const std::size_t size = states_.size() - middle;
  if (middle - first != size) return false;
  const auto moved = [&](NfaId id) { return id + size >= first ? static_cast<NfaId>(id + size) : id; };
  for (std::size_t i = first; i < middle; i++) {
    NfaState expected = states_[i];
    expected.out = moved(expected.out), expected.alt = moved(expected.alt);
    if (expected != states_[i + size]) return false;
  }
  return true;
}

void NfaStates::copy(std::size_t first, std::size_t middle, std::uint32_t count) {
  const std::size_t size = states_.size() - middle;
  if (count > (most_ - states_.size()) / size) {
    overflow_ = true;
    return;
  }
  states_.reserve(states_.size() + count * size);
  for (; count > 0; count--, first += size, middle += size)
    for (std::size_t i = middle; i < middle + size; i++) {
      NfaState state = states_[i];
      if (state.out >= first) state.out = static_cast<NfaId>(state.out + size);
      if (state.alt >= first) state.alt = static_cast<NfaId>(state.alt + size);
      states_.push_back(state);
    }
}

Nfa NfaStates::finish(NfaId start) {
  Nfa out;
  out.states = std::move(states_);
  out.start = start;
  out.trim();
  return out;
}

void Nfa::trim() {
  // Backward edges, grouped by target; then all states that reach state 0.
  std::vector<std::uint32_t> first(states.size() + 2);
  const auto each_edge = [&](auto visit) {
    for (std::size_t from = 0; from < states.size(); from++) {
      const NfaState& state = states[from];
      if (state.op == Op::kMatch || state.op == Op::kLookEnd) continue;
      if (state.op == Op::kKinds && state.kinds == kNoKinds) continue;
      visit(from, state.out);
      if (state.op == Op::kSplit && state.alt != state.out) visit(from, state.alt);
    }
  };
  each_edge([&](std::size_t, NfaId to) { first[to + 2]++; });
  for (std::size_t i = 2; i < first.size(); i++) first[i] += first[i - 1];
  std::vector<NfaId> sources(first.back());
  each_edge([&](std::size_t from, NfaId to) { sources[first[to + 1]++] = static_cast<NfaId>(from); });

  live.assign(states.size(), false);
  live[kMatch] = true;
  std::vector<NfaId> work{kMatch};
  for (std::size_t id = 0; id < states.size(); id++)
    if (states[id].op == Op::kLookEnd) live[id] = true, work.push_back(static_cast<NfaId>(id));
  while (!work.empty()) {
    const NfaId to = work.back();
    work.pop_back();
    for (std::uint32_t i = first[to]; i < first[to + 1]; i++) {
      if (live[sources[i]]) continue;
      live[sources[i]] = true;
      work.push_back(sources[i]);
    }
  }
}

}  // namespace aici::regex
