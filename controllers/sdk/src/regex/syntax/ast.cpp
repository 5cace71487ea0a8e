#include "aici/detail/regex/ast.hpp"

#include "../sort.hpp"

namespace aici::regex {

NodeId Ast::add(const Node& node) {
  nodes.push_back(node);
  return static_cast<NodeId>(nodes.size() - 1);
}

NodeId Ast::add(Node::Kind kind, std::uint32_t offset, const NodeId* of, std::uint32_t count) {
  if (count == 1 && (kind == Node::Kind::kConcat || kind == Node::Kind::kAlternate)) return of[0];
  const auto first = static_cast<std::uint32_t>(children.size());
  append<NodeId>(&children, {of, count});
  return add({.kind = kind, .offset = offset, .index = first, .count = count});
}

NodeId Ast::add_class(std::uint32_t offset, const CodepointSet& set) {
  return add({.kind = Node::Kind::kClass, .offset = offset, .index = class_index(set)});
}

std::uint32_t Ast::class_index(const CodepointSet& set) {
  Hasher hash;
  for (auto& r : set.ranges()) hash.add(r.low), hash.add(r.high);
  const std::uint32_t known = class_ids_.find(hash.bits(), [&](std::uint32_t i) { return classes[i] == set; });
  if (known != HashIndex::kNone) return known;
  classes.push_back(set);
  const auto index = static_cast<std::uint32_t>(classes.size() - 1);
  class_ids_.insert(hash.bits(), index);
  return index;
}

}  // namespace aici::regex
