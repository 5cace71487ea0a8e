#include "aici/regex/groups.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "aici/vocabulary.hpp"
#include "passes.hpp"

namespace aici::regex {

namespace {

/// More groups than variables that can be written.
constexpr std::size_t kMaxGroups = 256;

/// Returns a copy of some nodes with all below them, in sequence or as alternatives.
Ast copy(const Ast& ast, Node::Kind kind, std::uint32_t offset, std::span<const NodeId> wanted) {
  std::vector<bool> used(ast.nodes.size());
  for (const NodeId id : wanted) used[id] = true;
  for (std::size_t id = used.size(); id-- > 0;) {
    const Node& node = ast.nodes[id];
    if (!used[id] || node.kind == Node::Kind::kClass || node.kind == Node::Kind::kAssertion) continue;
    for (std::uint32_t i = 0; i < node.count; i++) used[ast.child(node, i)] = true;
  }
  Ast out;
  std::vector<NodeId> numbers(ast.nodes.size()), children;
  for (std::size_t id = 0; id < used.size(); id++) {
    if (!used[id]) continue;
    Node node = ast.nodes[id];
    if (node.kind == Node::Kind::kClass) {
      node.index = out.class_index(ast.classes[node.index]);
    } else if (node.kind != Node::Kind::kAssertion) {
      const auto first = static_cast<std::uint32_t>(out.children.size());
      for (std::uint32_t i = 0; i < node.count; i++) out.children.push_back(numbers[ast.child(node, i)]);
      node.index = first;
    }
    numbers[id] = out.add(node);
  }
  for (const NodeId id : wanted) children.push_back(numbers[id]);
  out.root = out.add(kind, offset, children.data(), static_cast<std::uint32_t>(children.size()));
  return out;
}

class Splitter {
 public:
  Splitter(Ast* ast, const Limits& limits, Parser* parser, Error* error)
      : ast_(*ast), limits_(limits), parser_(*parser), error_(error), has_group_(ast->nodes.size()) {}

  std::optional<Part> split() {
    if (ast_.groups.empty()) return made(make_regex(&ast_, limits_, &parser_, error_));
    if (ast_.groups.size() > kMaxGroups) return refuse(0, "the pattern has more than 256 named groups");
    drop_anchors();
    for (const Ast::Group& group : ast_.groups) has_group_[group.node] = true;
    for (NodeId id = 0; id < ast_.nodes.size(); id++) {
      const Node& node = ast_.nodes[id];
      if (!has_group_below(id)) continue;
      has_group_[id] = true;
      if (node.kind == Node::Kind::kUntil || node.kind == Node::Kind::kNot)
        return refuse(node.offset, "a named group inside (?until:...) or (?not:...) has no text");
      if (node.is_look()) return refuse(node.offset, "a named group inside a look-around has no text");
    }
    return part(ast_.root);
  }

 private:
  std::optional<Part> refuse(std::uint32_t offset, std::string_view why) {
    parser_.fail(offset, {why});
    return std::nullopt;
  }

  /// A text has to match from its start to its end anyway.
  void drop_anchors() {
    const auto is_root = [&](const Ast::Group& group) { return group.node == ast_.root; };
    if (std::ranges::any_of(ast_.groups, is_root)) return;
    bool starts = false;
    const std::vector<NodeId> parts = without_anchors(ast_, ast_.root, &starts);
    ast_.root = ast_.add(Node::Kind::kConcat, 0, parts.data(), static_cast<std::uint32_t>(parts.size()));
    has_group_.resize(ast_.nodes.size());
  }

  bool has_group_below(NodeId id) const {
    const Node& node = ast_.nodes[id];
    if (node.kind == Node::Kind::kClass || node.kind == Node::Kind::kAssertion) return false;
    for (std::uint32_t i = 0; i < node.count; i++)
      if (has_group_[ast_.child(node, i)]) return true;
    return false;
  }

  /// A node with the groups that it is.
  std::optional<Part> part(NodeId id) {
    std::optional<Part> found = inside(id);
    for (const Ast::Group& group : ast_.groups) {  // the inner ones come first
      if (!found) return found;
      if (group.node != id) continue;
      Part named{.kind = Part::Kind::kGroup, .name = group.name};
      named.parts.push_back(std::move(*found));
      found = std::move(named);
    }
    return found;
  }

  std::optional<Part> inside(NodeId id) {
    if (!has_group_below(id)) return plain(Node::Kind::kConcat, {&id, 1});
    const Node node = ast_.nodes[id];
    Part out{.kind = node.kind == Node::Kind::kConcat      ? Part::Kind::kSequence
                     : node.kind == Node::Kind::kAlternate ? Part::Kind::kChoice
                                                           : Part::Kind::kRepeat,
             .min = node.min,
             .max = node.max};
    std::vector<NodeId> run;  // children without groups
    for (std::uint32_t i = 0; i <= node.count; i++) {
      const bool ends = i == node.count || has_group_[ast_.child(node, i)];
      if (!ends) {
        run.push_back(ast_.child(node, i));
        continue;
      }
      if (!run.empty() && !add(plain(node.kind, run), &out)) return std::nullopt;
      run.clear();
      if (i < node.count && !add(part(ast_.child(node, i)), &out)) return std::nullopt;
    }
    return out;
  }

  static bool add(std::optional<Part> part, Part* out) {
    if (part) out->parts.push_back(std::move(*part));
    return part.has_value();
  }

  std::optional<Part> plain(Node::Kind kind, std::span<const NodeId> nodes) {
    const std::uint32_t offset = nodes.empty() ? 0 : ast_.nodes[nodes.front()].offset;
    Ast alone = copy(ast_, kind, offset, nodes);
    for (const Node& node : alone.nodes) {
      if (node.is_look()) return refuse(node.offset, "with named groups, look-arounds are not possible");
      if (node.kind == Node::Kind::kAssertion)
        return refuse(node.offset,
                      "with named groups, ^ is only possible as the first character of the pattern, $ as the last, and "
                      "word boundaries are not");
    }
    return made(make_regex(&alone, limits_, &parser_, error_));
  }

  static std::optional<Part> made(std::optional<Regex> regex) {
    if (!regex) return std::nullopt;
    return Part{.regex = std::move(regex)};
  }

  Ast& ast_;
  const Limits& limits_;
  Parser& parser_;
  Error* error_;
  std::vector<bool> has_group_;
};

}  // namespace

std::optional<Part> read_parts(std::string_view pattern, Error* error, const Limits& limits) {
  Ast ast;
  Parser parser(pattern, limits, &ast, error);
  if (!parser.parse()) return std::nullopt;
  return Splitter(&ast, limits, &parser, error).split();
}

void set_byte_classes(Part& part, ByteClasses classes) {
  if (part.regex) part.regex->set_byte_classes(classes);
  for (Part& below : part.parts) set_byte_classes(below, classes);
}

Part read_parts_or_fail(std::string_view pattern, const Limits& limits) {
  Error error;
  std::optional<Part> part = read_parts(pattern, &error, limits);
  if (!part) refuse(error);
  set_byte_classes(*part, vocabulary().classes());
  return std::move(*part);
}

}  // namespace aici::regex
