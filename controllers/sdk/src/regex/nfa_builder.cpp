#include "nfa_builder.hpp"

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
  }
  return next;
}

NfaId NfaBuilder::add_repeat(const Node& node, NfaId next) {
  const NodeId child = ast_.child(node);
  if (node.max == Node::kNoMax) {
    const NfaId head = states_.open();
    const NfaId body = add(child, head);
    states_.fill(head, states_.split(body, next));
    next = head;
  } else {
    const NfaId end = next;
    for (std::uint32_t i = node.min; i < node.max && !states_.overflow(); i++) {
      const NfaId before = next;
      next = states_.split(add(child, next), end);
      if (next == before) break;  // the child matches nothing but the empty text
    }
  }
  for (std::uint32_t i = 0; i < node.min && !states_.overflow(); i++) {
    const NfaId before = next;
    next = add(child, next);
    if (next == before) break;
  }
  return next;
}

}  // namespace aici::regex
