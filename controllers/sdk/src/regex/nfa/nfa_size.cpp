// Checks sizes before the automaton is built, since counted repetitions multiply.
#include <algorithm>

#include "nfa_builder.hpp"

namespace aici::regex {

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

}  // namespace aici::regex
