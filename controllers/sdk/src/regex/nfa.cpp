// Builds the nondeterministic automaton of a parsed pattern.
#include <algorithm>
#include <utility>

#include "passes.hpp"

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

// Counted repetitions multiply, so sizes are checked before the automaton is built.
BuildFailure check_sizes(const Ast& ast, const Limits& limits) {
  std::vector<std::uint64_t> sizes(ast.nodes.size());
  std::vector<bool> asserts(ast.nodes.size()), looks(ast.nodes.size());
  for (std::size_t id = 0; id < ast.nodes.size(); id++) {
    const Node& node = ast.nodes[id];
    const bool leaf = node.kind == Node::Kind::kClass || node.kind == Node::Kind::kAssertion;
    std::uint64_t size = 1;
    asserts[id] = node.kind == Node::Kind::kAssertion;
    looks[id] = node.is_look();
    for (std::uint32_t i = 0; !leaf && i < node.count; i++) {
      size += sizes[ast.child(node, i)];
      if (asserts[ast.child(node, i)]) asserts[id] = true;
      if (looks[ast.child(node, i)]) looks[id] = true;
    }
    if (node.kind == Node::Kind::kAlternate) size += node.count;
    if (node.kind == Node::Kind::kRepeat)
      size *= std::max({node.min, node.max == Node::kNoMax ? node.min + 1 : node.max, 1u});
    const bool eager = node.kind == Node::Kind::kUntil || node.kind == Node::Kind::kNot;
    if (eager && looks[id])
      return {"look-arounds are not supported inside (?until:...) and (?not:...)", node.offset};
    if (eager && asserts[id])
      return {"anchors and word boundaries are not supported inside (?until:...) and (?not:...)", node.offset};
    if (size > limits.nfa_states)
      return {node.kind == Node::Kind::kRepeat ? "the pattern is too large with this repetition expanded"
                                               : "the pattern is too large",
              node.offset};
    sizes[id] = size;
  }
  return {};
}

namespace {

/// Maximum number of look-behinds. Each runs beside the whole text.
constexpr std::uint16_t kMaxBehinds = 64;

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
  // not inlined, since `add` recurses and the stack is small
  [[gnu::noinline]] NfaId add_until(const Node& node, NfaId next);
  [[gnu::noinline]] NfaId add_not(const Node& node, NfaId next);

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

BuildFailure NfaBuilder::build(NodeId root, Nfa* out) {
  const NfaId start = add(root, Nfa::kMatch);
  if (!failure_.message && (states_.overflow() || sets_.overflow()))
    failure_ = {"the pattern is too large", ast_.nodes[root].offset};
  if (!failure_.message) *out = states_.finish(start);
  return failure_;
}

NfaId NfaBuilder::add(NodeId id, NfaId next) {
  const Node& node = ast_.nodes[id];
  switch (node.kind) {
    case Node::Kind::kClass: return states_.kinds(sets_.add(alphabet_.kinds_of_class(node.index)), next);
    case Node::Kind::kAssertion: return states_.assertion(node.assertion, next);
    case Node::Kind::kConcat:
      for (std::uint32_t i = node.count; i > 0; i--) next = add(ast_.child(node, i - 1), next);
      return next;
    case Node::Kind::kAlternate: {
      NfaId out = add(ast_.child(node, node.count - 1), next);
      for (std::uint32_t i = node.count - 1; i > 0; i--)
        out = states_.split(add(ast_.child(node, i - 1), next), out);
      return out;
    }
    case Node::Kind::kRepeat: return add_repeat(node, next);
    case Node::Kind::kUntil: return add_until(node, next);
    case Node::Kind::kNot: return add_not(node, next);
    case Node::Kind::kAhead:
    case Node::Kind::kNotAhead:
    case Node::Kind::kBehind:
    case Node::Kind::kNotBehind: return add_look(id, next);
  }
  return next;
}

NfaId NfaBuilder::add_look(NodeId id, NfaId next) {
  const Node& node = ast_.nodes[id];
  const bool behind = node.kind == Node::Kind::kBehind || node.kind == Node::Kind::kNotBehind;
  looks_.resize(ast_.nodes.size());
  Look& look = looks_[id];
  if (look.body == Nfa::kMatch) {
    if (behind && num_behinds_ == kMaxBehinds) failure_ = {"the pattern has more than 64 look-behinds", node.offset};
    if (behind && !failure_.message) look.number = ++num_behinds_;
    look.body = add(ast_.child(node), states_.look_end(look.number));
  }
  const auto op = static_cast<NfaState::Op>(static_cast<int>(NfaState::Op::kAhead) + static_cast<int>(node.kind) -
                                            static_cast<int>(Node::Kind::kAhead));
  return states_.look(op, look.number, look.body, next);
}

NfaId NfaBuilder::add_repeat(const Node& node, NfaId next) {
  const NodeId child = ast_.child(node);
  const auto maybe = [&](NfaId body, NfaId end) {
    return ordered_ && node.lazy ? states_.split(end, body) : states_.split(body, end);
  };
  if (node.max == Node::kNoMax) {
    const NfaId head = states_.open();
    const NfaId body = add(child, head);
    states_.fill(head, maybe(body, next));
    next = head;
  } else {
    const NfaId end = next;
    next = add_copies(node.max - std::min(node.min, node.max), next,
                      [&](NfaId before) { return maybe(add(child, before), end); });
  }
  return add_copies(node.min, next, [&](NfaId before) { return add(child, before); });
}

/// Adds `count` copies, each in front of the previous one; `add_one(next)` adds one copy. When a copy equals the
/// previous one with all references shifted, so do all further copies, which are then made without looking for existing
/// states.
template <class AddOne>
NfaId NfaBuilder::add_copies(std::uint32_t count, NfaId next, AddOne add_one) {
  std::size_t ends[3] = {};  // number of states after each of the last three copies
  for (std::uint32_t i = 0; i < count && !states_.overflow(); i++) {
    const NfaId before = next;
    next = add_one(before);
    if (next == before) break;  // it matches only the empty text
    ends[0] = ends[1], ends[1] = ends[2], ends[2] = states_.size();
    const std::size_t size = ends[2] - ends[1];
    if (i >= 3 && next == before + size && states_.is_copy(ends[0], ends[1])) {
      const std::uint32_t left = count - 1 - i;
      states_.copy(ends[0], ends[1], left);
      return static_cast<NfaId>(next + left * size);
    }
  }
  return next;
}

// (?until:...) and (?not:...): built by determinizing the inner pattern.

constexpr const char* kTooLarge = "the automaton of this group is too large";

/// Returns the set of all characters. It is complete, since add_hidden_classes (regex.cpp) adds the class of all.
KindSetId all_kinds(const Alphabet& alphabet, KindSets* sets) {
  std::vector<std::uint32_t> bits(alphabet.words());
  for (std::uint32_t kind = 1; kind < alphabet.size(); kind++) bits[kind / 32] |= 1u << (kind % 32);
  return sets->add(bits);
}

/// The shortest texts of L = (all texts) R: runs the deterministic automaton of L, and stops where it accepts.
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

/// The deterministic automaton with accepting and other states swapped; where it led nowhere, everything is accepted.
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

}  // namespace

BuildFailure build_nfa(const Ast& ast, const Alphabet& alphabet, const Limits& limits, KindSets* sets, bool ordered,
                       Nfa* out) {
  return NfaBuilder(ast, alphabet, limits, sets, ordered).build(ast.root, out);
}

}  // namespace aici::regex
