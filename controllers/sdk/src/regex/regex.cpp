#include "aici/regex/regex.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "aici/host.hpp"
#include "aici/number.hpp"
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

}  // namespace aici::regex
