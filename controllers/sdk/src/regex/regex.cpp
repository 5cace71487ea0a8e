#include "aici/regex/regex.hpp"

#include <string>

#include "aici/regex/unicode.hpp"
#include "nfa_builder.hpp"
#include "number.hpp"
#include "parser.hpp"

namespace aici::regex {
namespace {

/// The classes that assertions and complements need, added to those of the pattern.
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

bool has_assertions(const Ast& ast) {
  for (const Node& node : ast.nodes)
    if (node.kind == Node::Kind::kAssertion) return true;
  return false;
}

}  // namespace

std::string Error::text() const {
  std::string out;
  if (line > 1) out.append("line ").append(Number(line).text()).append(", ");
  return out.append("column ").append(Number(column).text()).append(": ").append(message);
}

std::optional<Regex> Regex::compile(std::string_view pattern, Error* error, const Limits& limits) {
  Ast ast;
  Parser parser(pattern, limits, &ast, error);
  if (!parser.parse()) return std::nullopt;
  const auto refuse = [&](const BuildFailure& failure) -> std::optional<Regex> {
    parser.fail(failure.offset, {failure.message});
    return std::nullopt;
  };
  if (const BuildFailure failure = check_sizes(ast, limits); failure.message) return refuse(failure);
  const AssertionClasses hidden = add_hidden_classes(&ast);
  Alphabet alphabet;
  if (!alphabet.build(ast.classes, limits)) return refuse({"the pattern tells too many kinds of characters apart", 0});
  auto program = std::make_unique<Program>(alphabet.words());
  program->alphabet = std::move(alphabet);
  NfaBuilder builder(ast, program->alphabet, limits, &program->sets);
  if (const BuildFailure failure = builder.build(ast.root, &program->nfa); failure.message) return refuse(failure);
  if (has_assertions(ast) &&
      !resolve_assertions(hidden, program->alphabet, &program->sets, 0xffff, &program->nfa))
    return refuse({"the pattern with its anchors and word boundaries is too large", 0});
  if (!program->nfa.live[program->nfa.start]) return refuse({"no text matches this pattern", 0});
  return Regex(std::make_unique<Automaton>(std::move(program), limits));
}

}  // namespace aici::regex
