#include "aici/regex/regex.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aici/host.hpp"
#include "aici/regex/groups.hpp"
#include "aici/text.hpp"
#include "aici/vocabulary.hpp"
#include "passes.hpp"
#include "unicode.hpp"

namespace aici::regex {

namespace {

/// Adds the classes that assertions and complements need to those of the pattern.
AssertionClasses add_hidden_classes(Ast* ast) {
  AssertionClasses classes;
  bool any = false;
  for (const Node& node : ast->nodes) {
    any |= node.kind == Node::Kind::kUntil || node.kind == Node::Kind::kNot;
    if (node.kind != Node::Kind::kAssertion) continue;
    std::uint32_t* wanted = is_line_assertion(node.assertion)    ? &classes.newline
                            : is_ascii_assertion(node.assertion) ? &classes.ascii_word
                            : is_word_assertion(node.assertion)  ? &classes.word
                                                                 : nullptr;
    if (!wanted || *wanted != AssertionClasses::kNone) continue;
    CodepointSet set = wanted == &classes.newline ? CodepointSet('\n', '\n') : unicode_word();
    *wanted = ast->class_index(wanted == &classes.ascii_word ? set & CodepointSet(0, 0x7F) : set);
  }
  if (any) ast->class_index(CodepointSet::all());
  return classes;
}

constexpr const char* kNoText = "no text matches this pattern";

/// Returns null if the automaton has neither look-arounds nor assertions, or once they are removed; else the reason.
const char* resolve(const Ast& ast, const AssertionClasses& hidden, Program* program) {
  constexpr std::uint32_t kMaxStates = 0xffff;
  bool looks = false, asserts = false;
  for (const Node& node : ast.nodes)
    looks |= node.is_look(), asserts |= node.kind == Node::Kind::kAssertion;
  if (!looks && !asserts) return nullptr;
  const auto remove = looks ? resolve_looks : resolve_assertions;
  if (remove(hidden, program->alphabet, &program->sets, kMaxStates, &program->nfa)) return nullptr;
  return looks ? "the pattern with its look-arounds is too large"
               : "the pattern with its anchors and word boundaries is too large";
}

/// Returns, for each node without assertions, look-arounds and complements in it, whether it may match the empty text.
std::vector<bool> find_empty(const Ast& ast) {
  std::vector<bool> empty(ast.nodes.size());
  for (NodeId id = 0; id < ast.nodes.size(); id++) {
    const Node& node = ast.nodes[id];
    if (node.kind == Node::Kind::kClass || node.kind == Node::Kind::kAssertion) continue;
    std::uint32_t count = 0;
    for (std::uint32_t i = 0; i < node.count; i++) count += empty[ast.child(node, i)];
    empty[id] = node.kind == Node::Kind::kAlternate ? count > 0 : count == node.count;
    if (node.kind == Node::Kind::kRepeat && node.min == 0) empty[id] = true;
  }
  return empty;
}

/// Returns why the lazy repetitions of a lexeme do not say where it ends.
BuildFailure check_lazy(const Ast& ast) {
  for (const Node& node : ast.nodes)
    if (node.kind == Node::Kind::kAssertion || node.kind == Node::Kind::kNot || node.is_look())
      return {"a lazy repetition such as *? does not say where a lexeme ends if there are also anchors, word boundaries, "
              "look-arounds, complements or intersections: write it without the ?", node.offset};
  const std::vector<bool> empty = find_empty(ast);
  for (const Node& node : ast.nodes)
    if (node.kind == Node::Kind::kRepeat && node.max > 1 && empty[ast.child(node)])
      return {"beside a lazy repetition such as *?, what is repeated must not be empty: write (?:a+b?)* instead of "
              "(?:a*b?)*", node.offset};
  return {};
}

/// Refuses look-arounds that look at what surrounds a lexeme.
BuildFailure check_edges(const Ast& ast) {
  std::vector<std::pair<NodeId, bool>> edges{{ast.root, false}, {ast.root, true}};  // and whether it is the last part
  while (!edges.empty()) {
    const auto [id, last] = edges.back();
    const Node& node = ast.nodes[id];
    edges.pop_back();
    if (last ? node.kind == Node::Kind::kAhead || node.kind == Node::Kind::kNotAhead
             : node.kind == Node::Kind::kBehind || node.kind == Node::Kind::kNotBehind)
      return {"a look-around cannot see what is before or behind a lexeme", node.offset};
    if (node.kind == Node::Kind::kAlternate)
      for (std::uint32_t i = 0; i < node.count; i++) edges.emplace_back(ast.child(node, i), last);
    if (node.kind == Node::Kind::kConcat && node.count > 0)
      edges.emplace_back(ast.child(node, last ? node.count - 1 : 0), last);
  }
  return {};
}

/// Builds the automaton of a parsed pattern, or returns null and sets `failure`.
std::unique_ptr<Automaton> make_automaton(Ast* ast, const Limits& limits, BuildFailure* failure, bool ordered = false) {
  if (*failure = check_sizes(*ast, limits); failure->message) return nullptr;
  const AssertionClasses hidden = add_hidden_classes(ast);
  Alphabet alphabet;
  if (!alphabet.build(ast->classes, limits)) {
    *failure = {"the pattern distinguishes too many kinds of characters", 0};
    return nullptr;
  }
  auto program = std::make_unique<Program>(alphabet.words());
  program->alphabet = std::move(alphabet);
  program->ordered = ordered;
  *failure = build_nfa(*ast, program->alphabet, limits, &program->sets, ordered, &program->nfa);
  if (failure->message) return nullptr;
  if (const char* too_large = resolve(*ast, hidden, program.get())) {
    *failure = {too_large, 0};
    return nullptr;
  }
  if (!program->nfa.live[program->nfa.start]) {
    *failure = {kNoText, 0};
    return nullptr;
  }
  return std::make_unique<Automaton>(std::move(program), limits);
}

/// Returns the texts in which some part matches `node`; `any` is every text.
NodeId add_texts_with(Ast* ast, NodeId node, NodeId any) {
  bool starts = false;
  std::vector<NodeId> parts = without_anchors(*ast, node, &starts);
  if (!starts) parts.insert(parts.begin(), any);
  parts.push_back(any);
  return ast->add(Node::Kind::kConcat, 0, parts.data(), static_cast<std::uint32_t>(parts.size()));
}

}  // namespace

std::vector<NodeId> without_anchors(const Ast& ast, NodeId node, bool* starts) {
  const auto is = [&](NodeId id, Assertion assertion) {
    return ast.nodes[id].kind == Node::Kind::kAssertion && ast.nodes[id].assertion == assertion;
  };
  std::vector<NodeId> parts{node};
  if (const Node& whole = ast.nodes[node]; whole.kind == Node::Kind::kConcat) {
    parts.clear();
    for (std::uint32_t i = 0; i < whole.count; i++) parts.push_back(ast.child(whole, i));
  }
  if (!parts.empty() && is(parts.back(), Assertion::kTextEnd)) parts.pop_back();
  *starts = !parts.empty() && is(parts.front(), Assertion::kTextStart);
  if (*starts) parts.erase(parts.begin());
  return parts;
}

std::optional<Regex> make_regex(Ast* ast, const Limits& limits, Parser* parser, Error* error, bool ordered) {
  BuildFailure failure;
  auto automaton = make_automaton(ast, limits, &failure, ordered);
  if (automaton) return Regex(std::move(automaton));
  parser->fail(failure.offset, {failure.message});
  error->no_text = failure.message == kNoText;
  return std::nullopt;
}

std::string Error::text() const {
  std::string out;
  if (line > 1) out.append("line ").append(Number(line).text()).append(", ");
  return out.append("column ").append(Number(column).text()).append(": ").append(message);
}

std::optional<Regex> Regex::compile(std::string_view pattern, Error* error, const Limits& limits) {
  Ast ast;
  Parser parser(pattern, limits, &ast, error);
  if (!parser.parse()) return std::nullopt;
  return make_regex(&ast, limits, &parser, error);
}

std::optional<Regex> Regex::lexeme(std::string_view pattern, bool lazy, Error* error, const Limits& limits) {
  Ast ast;
  Parser parser(pattern, limits, &ast, error);
  if (!parser.parse()) return std::nullopt;
  lazy = lazy && std::ranges::any_of(ast.nodes, [](const Node& node) { return node.lazy; });
  BuildFailure unclear;
  if (lazy) unclear = check_lazy(ast);
  if (!unclear.message) unclear = check_edges(ast);
  if (unclear.message) {
    parser.fail(unclear.offset, {unclear.message});
    return std::nullopt;
  }
  return make_regex(&ast, limits, &parser, error, lazy);
}

std::optional<Regex> Regex::without(std::string_view pattern, Error* error, const Limits& limits) {
  Ast ast;
  Parser parser(pattern, limits, &ast, error);
  if (!parser.parse()) return std::nullopt;
  const NodeId character = ast.add_class(0, CodepointSet::all());
  const NodeId any = ast.add(Node::Kind::kRepeat, 0, &character, 1);
  ast.nodes[any].max = Node::kNoMax;
  std::vector<NodeId> unwanted{ast.add(Node::Kind::kConcat, 0, nullptr, 0)};
  const Node root = ast.nodes[ast.root];
  if (root.kind == Node::Kind::kAlternate)
    for (std::uint32_t i = 0; i < root.count; i++) unwanted.push_back(add_texts_with(&ast, ast.child(root, i), any));
  else
    unwanted.push_back(add_texts_with(&ast, ast.root, any));
  const NodeId some = ast.add(Node::Kind::kAlternate, 0, unwanted.data(), static_cast<std::uint32_t>(unwanted.size()));
  ast.root = ast.add(Node::Kind::kNot, 0, &some, 1);
  return make_regex(&ast, limits, &parser, error);
}

std::optional<Regex> Regex::until(std::span<const std::string> stops, Error* error, const Limits& limits) {
  Ast ast;
  std::vector<NodeId> texts, characters;
  for (const std::string& stop : stops) {
    characters.clear();
    for (std::size_t at = 0; at < stop.size();) {
      const std::uint32_t c = decode_utf8(stop, &at);
      if (c == kInvalidUtf8) {
        *error = Error{.message = "a text to stop at is not valid UTF-8"};
        return std::nullopt;
      }
      characters.push_back(ast.add_class(0, CodepointSet(c, c)));
    }
    if (characters.empty()) {
      *error = Error{.message = "a text to stop at is empty"};
      return std::nullopt;
    }
    texts.push_back(
        ast.add(Node::Kind::kConcat, 0, characters.data(), static_cast<std::uint32_t>(characters.size())));
  }
  const NodeId any = ast.add(Node::Kind::kAlternate, 0, texts.data(), static_cast<std::uint32_t>(texts.size()));
  ast.root = ast.add(Node::Kind::kUntil, 0, &any, 1);
  BuildFailure failure;
  auto automaton = make_automaton(&ast, limits, &failure);
  if (!automaton) {
    *error = Error{.message = failure.message};
    return std::nullopt;
  }
  return Regex(std::move(automaton));
}

void refuse(const Error& error) { fail("the regular expression is refused at " + error.text()); }

Regex compile_or_fail(std::string_view pattern, const Limits& limits) {
  Error error;
  std::optional<Regex> regex = Regex::compile(pattern, &error, limits);
  if (!regex) refuse(error);
  regex->set_byte_classes(vocabulary().classes());
  return std::move(*regex);
}

Regex until_or_fail(std::span<const std::string> stops, const Limits& limits) {
  Error error;
  std::optional<Regex> regex = Regex::until(stops, &error, limits);
  if (!regex) fail("the texts to stop at are refused: " + error.message);
  regex->set_byte_classes(vocabulary().classes());
  return std::move(*regex);
}

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
