// Removes assertions from an automaton. A state is split by the side to its left: the character before it, as far as
// assertions distinguish characters. Each side to its right is tried in turn; on each of them it is known which
// assertions hold. A state from which no assertion can be reached before the next character does not depend on its left
// side, and is made only once.
#include <algorithm>
#include <utility>

#include "passes.hpp"

namespace aici::regex {

Sides find_sides(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets) {
  const auto has = [&](std::uint32_t index, std::uint32_t kind) {
    return index != AssertionClasses::kNone && (alphabet.kinds_of_class(index)[kind / 32] >> (kind % 32) & 1);
  };
  Sides out;
  std::vector<std::vector<std::uint32_t>> members(1);
  for (std::uint32_t kind = 1; kind < alphabet.size(); kind++) {
    const Side side{.newline = has(classes.newline, kind),
                    .word = has(classes.word, kind),
                    .ascii_word = has(classes.ascii_word, kind)};
    const auto known =
        static_cast<std::size_t>(std::find(out.sides.begin(), out.sides.end(), side) - out.sides.begin());
    if (known == out.sides.size()) {
      out.sides.push_back(side);
      members.emplace_back(alphabet.words());
    }
    members[known][kind / 32] |= 1u << (kind % 32);
  }
  for (std::size_t i = 1; i < out.sides.size(); i++) out.kinds.push_back(sets->add(members[i]));
  return out;
}

bool assertion_holds(Assertion assertion, Side left, Side right) {
  const bool ascii = is_ascii_assertion(assertion);
  const bool l = ascii ? left.ascii_word : left.word, r = ascii ? right.ascii_word : right.word;
  switch (assertion) {
    case Assertion::kTextStart: return left.edge;
    case Assertion::kTextEnd: return right.edge;
    case Assertion::kLineStart: return left.edge || left.newline;
    case Assertion::kLineEnd: return right.edge || right.newline;
    case Assertion::kWordBoundary:
    case Assertion::kAsciiWordBoundary: return l != r;
    case Assertion::kNoWordBoundary:
    case Assertion::kAsciiNoWordBoundary: return l == r;
    case Assertion::kWordStart:
    case Assertion::kAsciiWordStart: return !l && r;
    case Assertion::kWordEnd:
    case Assertion::kAsciiWordEnd: return l && !r;
    case Assertion::kWordStartHalf:
    case Assertion::kAsciiWordStartHalf: return !l;
    case Assertion::kWordEndHalf:
    case Assertion::kAsciiWordEndHalf: return !r;
  }
  return false;
}

namespace {

using Op = NfaState::Op;

class AssertionResolver {
 public:
  AssertionResolver(const Nfa& nfa, Sides sides, KindSets* sets, std::uint32_t most)
      : nfa_(nfa),
        sets_(*sets),
        states_(sets, most),
        sides_(std::move(sides.sides)),
        side_kinds_(std::move(sides.kinds)) {}

  bool run(Nfa* out);

 private:
  void find_sensitive();
  NfaId get(NfaId state, std::size_t side);
  void resolve(NfaId state, std::size_t side, NfaId into);
  NfaId step(NfaId state);
  NfaId options(NfaId state, std::size_t left);
  NfaId then(KindSetId kinds, NfaId next);

  static constexpr std::size_t kEdge = Sides::kEdge;

  const Nfa& nfa_;
  KindSets& sets_;
  NfaStates states_;
  std::vector<Side> sides_;
  std::vector<KindSetId> side_kinds_;
  std::vector<bool> sensitive_;
  std::vector<NfaId> made_;  ///< per state and side; 0: not made yet
  std::vector<std::pair<NfaId, std::size_t>> work_;
  std::vector<std::uint32_t> marks_;
  std::vector<std::uint32_t> slots_;  ///< per state, its index in `found` of options()
  std::uint32_t walk_ = 0;
};

/// Loops in the automaton go through states that are made later, so a few rounds suffice.
void AssertionResolver::find_sensitive() {
  sensitive_.assign(nfa_.states.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t id = 0; id < nfa_.states.size(); id++) {
      const NfaState& s = nfa_.states[id];
      if (sensitive_[id] || !nfa_.live[id]) continue;
      if (s.op == Op::kAssert || (s.op == Op::kSplit && (sensitive_[s.out] || sensitive_[s.alt])))
        sensitive_[id] = changed = true;
    }
  }
}

bool AssertionResolver::run(Nfa* out) {
  find_sensitive();
  marks_.resize(nfa_.states.size());
  slots_.resize(nfa_.states.size());
  made_.resize(nfa_.states.size() * sides_.size());
  const NfaId start = get(nfa_.start, kEdge);
  while (!work_.empty() && !states_.overflow() && !sets_.overflow()) {
    const auto [state, side] = work_.back();
    work_.pop_back();
    resolve(state, side, made_[state * sides_.size() + side]);
  }
  if (states_.overflow() || sets_.overflow()) return false;
  *out = states_.finish(start);
  return true;
}

/// Returns the new state for `state` with `side` to its left.
NfaId AssertionResolver::get(NfaId state, std::size_t side) {
  if (state == Nfa::kMatch) return Nfa::kMatch;
  if (!sensitive_[state]) side = kEdge;
  NfaId& made = made_[state * sides_.size() + side];
  if (made == 0) {
    made = states_.open();
    work_.push_back({state, side});
  }
  return made;
}

void AssertionResolver::resolve(NfaId state, std::size_t side, NfaId into) {
  const NfaId options_here = sensitive_[state] ? options(state, side) : step(state);
  states_.fill(into, options_here);
}

NfaId AssertionResolver::step(NfaId state) {
  const NfaState& s = nfa_.states[state];
  if (!nfa_.live[state]) return states_.kinds(kNoKinds, Nfa::kMatch);
  if (s.op == Op::kSplit) return states_.split(get(s.out, kEdge), get(s.alt, kEdge));
  return then(s.kinds, s.out);
}

/// Returns a state for a character of `kinds`, then `next`, which may depend on that character.
NfaId AssertionResolver::then(KindSetId kinds, NfaId next) {
  if (!sensitive_[next]) return states_.kinds(kinds, get(next, kEdge));
  NfaId out = states_.kinds(kNoKinds, Nfa::kMatch);
  for (std::size_t side = 1; side < sides_.size(); side++) {
    const KindSetId part = sets_.intersect(kinds, side_kinds_[side]);
    if (part != kNoKinds) out = states_.split(states_.kinds(part, get(next, side)), out);
  }
  return out;
}

NfaId AssertionResolver::options(NfaId state, std::size_t left) {
  std::vector<std::pair<NfaId, KindSetId>> found;  // the target, and the kinds that lead to it
  bool matches = false;
  std::vector<NfaId> stack;
  for (std::size_t right = 0; right < sides_.size(); right++) {
    walk_++;
    stack.assign(1, state);
    while (!stack.empty()) {
      const NfaId id = stack.back();
      stack.pop_back();
      if (marks_[id] == walk_ || !nfa_.live[id]) continue;
      marks_[id] = walk_;
      const NfaState& s = nfa_.states[id];
      if (s.op == Op::kSplit) {
        stack.push_back(s.alt);
        stack.push_back(s.out);
      } else if (s.op == Op::kAssert) {
        if (assertion_holds(s.assertion, sides_[left], sides_[right])) stack.push_back(s.out);
      } else if (s.op == Op::kMatch) {
        matches |= right == kEdge;
      } else if (right != kEdge) {
        const KindSetId part = sets_.intersect(s.kinds, side_kinds_[right]);
        if (part == kNoKinds) continue;
        std::uint32_t& slot = slots_[s.out];
        if (slot >= found.size() || found[slot].first != s.out) {
          slot = static_cast<std::uint32_t>(found.size());
          found.push_back({s.out, kNoKinds});
        }
        found[slot].second = sets_.unite(found[slot].second, part);
      }
    }
  }
  NfaId out = matches ? Nfa::kMatch : states_.kinds(kNoKinds, Nfa::kMatch);
  for (const auto& [next, kinds] : found) out = states_.split(then(kinds, next), out);
  return out;
}

}  // namespace

bool resolve_assertions(const AssertionClasses& classes, const Alphabet& alphabet, KindSets* sets,
                        std::uint32_t most, Nfa* nfa) {
  const Nfa from = std::move(*nfa);
  return AssertionResolver(from, find_sides(classes, alphabet, sets), sets, most).run(nfa);
}

}  // namespace aici::regex
