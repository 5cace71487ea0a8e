#include "translate.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/substring.hpp"
#include "../front/patterns.hpp"
#include "../front/rules.hpp"
#include "../front/schema.hpp"
#include "patterns.hpp"

namespace aici::lark {

namespace {

using cfg::Expr;
using cfg::Grammar;
using cfg::Lexemes;
using front::Source;
using Kind = LarkNode::Kind;

constexpr const char* kStart = "start";
/// Maximum number of warnings about terminals. (Finding the position of a warning takes time: lines are counted.)
constexpr int kMostWarnings = 20;

class Translator {
 public:
  Translator(const LarkSyntax& syntax, const Source& source)
      : syntax_(syntax), source_(source), patterns_(syntax, source), rules_(source, grammar_),
        exprs_(syntax.nodes.size()), terminals_(syntax.terminals.size()) {
    for (const LarkDefinition& rule : syntax.rules) read_rule(rule);
    for (const LarkDefinition& ignored : syntax.ignored)
      grammar_.ignore(terminal(patterns_.of(ignored), ignored.at, false));
    rules_.check_names(kStart);
    rules_.check_texts(kStart);
    warn_of_unused_terminals();
  }

  Lark take() {
    const cfg::Rule start = rules_.find(kStart)->rule;
    return {std::move(grammar_), start};
  }

 private:
  void warn_of_unused_terminals() {
    std::set<std::string_view> used;
    for (const LarkNode& node : syntax_.nodes)
      if (node.kind == Kind::kName) used.insert(node.text);
    int warnings = 0;
    for (const LarkDefinition& terminal : syntax_.terminals)
      if (!used.contains(terminal.name) && warnings++ < kMostWarnings)
        front::warn(source_, terminal.at, "the terminal " + terminal.name + " is not used");
  }

  void read_rule(const LarkDefinition& rule) {
    rules_.enter(rule.name, rule.at);
    name_ = rule.name;
    if (rule.lazy) {
      rules_.define(terminal(patterns_.of(rule), rule.at, true));
      return;
    }
    for (Part part = rule.first; part <= rule.body; part++) exprs_[part] = expr_of(part);
    rules_.define(exprs_[rule.body]);
  }

  Expr expr_of(Part part) {
    const LarkNode& node = syntax_.nodes[part];
    std::vector<Expr> parts;
    for (const Part inner : node.parts) parts.push_back(exprs_[inner]);
    switch (node.kind) {
      case Kind::kText: return grammar_.literal(node.text);
      case Kind::kPattern: return terminal(patterns_.of(part), node.at, false);
      case Kind::kName: return named(node);
      case Kind::kGroup: return front::as_rule(grammar_, parts[0], name_);
      case Kind::kChunks: return chunks(part);
      case Kind::kJson: return schema(node);
      case Kind::kSequence: return grammar_.sequence(parts);
      case Kind::kChoice: return grammar_.choice(parts);
      case Kind::kRepeat: return front::repeated(grammar_, parts[0], node.least, node.most, name_);
      case Kind::kBoth: source_.fail(node.at, "`&` is only possible in terminals: rules are not regular");
      case Kind::kNot: source_.fail(node.at, "`~` is only possible in terminals: rules are not regular");
    }
    return grammar_.never();
  }

  Expr named(const LarkNode& node) {
    if (!is_terminal_name(node.text)) return rules_.call(node.text, node.at);
    if (!patterns_.has(node.text)) patterns_.fail_not_regular(node);
    const std::uint32_t number = patterns_.number(node.text);
    std::optional<Expr>& known = terminals_[number];
    if (!known) {
      const LarkDefinition& definition = syntax_.terminals[number];
      const LarkNode& body = syntax_.nodes[definition.body];
      known = body.kind == Kind::kChunks ? chunks(definition.body)
              : body.kind == Kind::kText ? grammar_.literal(body.text)
                                         : terminal(patterns_.of(definition.body), definition.at, false);
    }
    return *known;
  }

  /// Replaces everything before the schema by blanks, so that messages have positions in the grammar.
  Expr schema(const LarkNode& node) {
    std::string text;
    for (const char c : source_.since(0).substr(0, node.text_at))
      if (c == '\n' || (c & 0xC0) != 0x80) text += c == '\n' ? c : ' ';
    return front::read_schema(source_, node.at, text + node.text, grammar_);
  }

  /// Single characters have their own automaton, which may be large. A large number of other chunks would be too large
  /// for a regular expression and becomes rules: each chunk, optionally followed by the chunks after it.
  Expr chunks(Part part) {
    const LarkNode& node = syntax_.nodes[part];
    if (node.characters) {
      std::string text;
      for (const std::string& chunk : node.chunks) text += chunk;
      return grammar_.substring(Substrings(text));
    }
    if (node.chunks.size() <= LarkPatterns::kMostChunks) return terminal(patterns_.of(part), node.at, false);
    grammar_.set_lexemes(Lexemes::kAnywhere);
    const cfg::Rule all = grammar_.declare(name_);
    Expr behind = grammar_.empty();
    grammar_.define(all, behind);
    for (std::size_t i = node.chunks.size(); i-- > 0;) {
      const cfg::Rule here = grammar_.declare(name_);
      grammar_.define(here, grammar_.sequence({grammar_.literal(node.chunks[i]), behind}));
      grammar_.define(all, grammar_.call(here));
      behind = grammar_.optional(grammar_.call(here));
    }
    grammar_.set_lexemes(Lexemes::kLongest);
    return grammar_.call(all);
  }

  Expr terminal(const std::string& pattern, std::size_t at, bool lazy) {
    const auto [found, is_new] = by_pattern_.emplace((lazy ? "?" : "=") + pattern, grammar_.never());
    if (!is_new) return found->second;
    auto made = front::read_pattern(source_, pattern, false, [&](std::size_t) { return at; });
    if (!made) {
      front::warn(source_, at, "no text matches this");
      return grammar_.never();
    }
    if (lazy) {
      const bool may_be_empty = made->accepting(made->initial());
      found->second = grammar_.early_regex(std::move(*made));
      if (may_be_empty) found->second = grammar_.optional(found->second);
    } else {
      found->second = grammar_.regex(std::move(*made));
    }
    return found->second;
  }

  const LarkSyntax& syntax_;
  const Source& source_;
  Grammar grammar_{Lexemes::kLongest};
  LarkPatterns patterns_;
  front::Rules rules_;
  std::vector<Expr> exprs_;
  std::vector<std::optional<Expr>> terminals_;
  std::map<std::string, Expr> by_pattern_;
  std::string_view name_;  ///< the rule that is being translated
};

}  // namespace

Lark translate_lark(const LarkSyntax& syntax, const Source& source) { return Translator(syntax, source).take(); }

}  // namespace aici::lark
