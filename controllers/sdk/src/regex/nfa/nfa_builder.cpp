#include "nfa_builder.hpp"

#include <algorithm>

namespace aici::regex {

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

}  // namespace aici::regex
