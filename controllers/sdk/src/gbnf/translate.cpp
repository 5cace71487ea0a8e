#include "translate.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../front/patterns.hpp"
#include "../front/rules.hpp"
#include "../front/tokens.hpp"

namespace aici::gbnf {

namespace {

using cfg::Expr;
using cfg::Grammar;
using cfg::kNoLimit;
using front::Source;
using Kind = GbnfNode::Kind;

constexpr const char* kStart = "root";
/// Limits on a pattern: states with repetitions expanded, and nesting of groups. The engine combines larger parts.
constexpr std::uint64_t kMaxStates = 400;
constexpr unsigned kMaxGroups = 40;
/// Limits on states of patterns that are inlined where a rule is called: of one pattern, and of all.
constexpr std::uint64_t kMaxCopied = 100, kMaxCopies = 100'000;

/// The translation of a part of the grammar: a pattern (a literal is one, too) or an expression.
struct Piece {
  bool is_pattern = false;
  std::string pattern{};
  std::optional<std::string> literal{};
  std::uint64_t states = 0;
  unsigned groups = 0;
  Expr expr = 0;
};

class Translator {
 public:
  Translator(const GbnfSyntax& syntax, const Source& source)
      : syntax_(syntax), source_(source), rules_(source, grammar_), pieces_(syntax.nodes.size()),
        copied_(syntax.rules.size()) {
    declare_rules();
    for (const std::uint32_t rule : in_order()) translate(rule);
    rules_.check_texts(kStart);
  }

  Gbnf take() {
    const cfg::Rule start = rules_.find(kStart)->rule;
    return {std::move(grammar_), start};
  }

 private:
  void declare_rules() {
    Part part = 0;  // the nodes of a rule have consecutive numbers, the body last
    for (std::uint32_t number = 0; number < syntax_.rules.size(); number++) {
      const GbnfRule& rule = syntax_.rules[number];
      numbers_.emplace(rule.name, number);
      rules_.enter(rule.name, rule.at);
      for (firsts_.push_back(part); part <= rule.body; part++)
        if (const GbnfNode& node = syntax_.nodes[part]; node.kind == Kind::kCall) rules_.call(node.text, node.at);
    }
    rules_.check_names(kStart);
  }

  /// Returns rules after the rules that they call. Recursive rules come last.
  std::vector<std::uint32_t> in_order() const {
    std::vector<std::uint32_t> order, open(syntax_.rules.size());
    std::vector<std::vector<std::uint32_t>> users(syntax_.rules.size());
    for (std::uint32_t rule = 0; rule < syntax_.rules.size(); rule++)
      for (Part part = firsts_[rule]; part <= syntax_.rules[rule].body; part++)
        if (const GbnfNode& node = syntax_.nodes[part]; node.kind == Kind::kCall)
          users[numbers_.find(node.text)->second].push_back(rule), open[rule]++;
    for (std::uint32_t rule = 0; rule < open.size(); rule++)
      if (open[rule] == 0) order.push_back(rule);
    for (std::size_t i = 0; i < order.size(); i++)
      for (const std::uint32_t user : users[order[i]])
        if (--open[user] == 0) order.push_back(user);
    for (std::uint32_t rule = 0; rule < open.size(); rule++)
      if (open[rule] != 0) order.push_back(rule);
    return order;
  }

  void translate(std::uint32_t number) {
    const GbnfRule& rule = syntax_.rules[number];
    name_ = rule.name;
    for (Part part = firsts_[number]; part <= rule.body; part++) pieces_[part] = piece_of(syntax_.nodes[part]);
    Piece& body = pieces_[rule.body];
    copied_[number] = body.is_pattern && body.states <= kMaxCopied && rule.name != kStart;
    rules_.enter(rule.name, rule.at);
    rules_.define(expr_of(body, rule.at));
  }

  Piece piece_of(const GbnfNode& node) {
    switch (node.kind) {
      case Kind::kLiteral:
        if (node.text.size() > kMaxStates) return {.expr = grammar_.literal(node.text)};
        return {true, front::pattern_of(node.text), node.text, node.text.size()};
      case Kind::kClass: return {true, node.text, {}, 1 + node.text.size() / 64};
      case Kind::kCall: return call(node);
      case Kind::kTokens: return {.expr = front::one_of(grammar_, source_, node.tokens, node.at)};
      case Kind::kSequence: return sequence(node);
      case Kind::kChoice: return choice(node);
      case Kind::kRepeat: return repeat(node);
      case Kind::kGroup: {
        const Piece& inside = pieces_[node.parts[0]];
        return inside.is_pattern ? inside : Piece{.expr = front::as_rule(grammar_, inside.expr, name_)};
      }
    }
    return {};
  }

  Piece call(const GbnfNode& node) {
    const std::uint32_t number = numbers_.find(node.text)->second;
    const Piece& body = pieces_[syntax_.rules[number].body];
    if (copied_[number] && copies_ + body.states <= kMaxCopies) {
      copies_ += body.states;
      return body;
    }
    return {.expr = grammar_.call(rules_.find(node.text)->rule)};
  }

  Piece sequence(const GbnfNode& node) {
    std::vector<Expr> parts;
    Piece run{true, "", ""};
    const auto flush = [&] {
      if (!(run.literal && run.literal->empty())) parts.push_back(expr_of(run, node.at));
      run = {true, "", ""};
    };
    for (const Part part : node.parts) {
      const Piece& next = pieces_[part];
      if (!next.is_pattern || run.states + next.states > kMaxStates) flush();
      if (!next.is_pattern) {
        parts.push_back(next.expr);
        continue;
      }
      run.pattern += next.pattern;
      run.states += next.states;
      run.groups = std::max(run.groups, next.groups);
      if (run.literal && next.literal)
        *run.literal += *next.literal;
      else
        run.literal.reset();
    }
    if (parts.empty()) return run;
    flush();
    return {.expr = grammar_.sequence(parts)};
  }

  /// Joins the alternatives that are patterns.
  Piece choice(const GbnfNode& node) {
    std::vector<Expr> others;
    Piece all{true};
    const auto flush = [&] {
      if (all.pattern.empty()) return;
      all.pattern += ")", all.groups++;
      others.push_back(expr_of(all, node.at));
      all = {true};
    };
    for (const Part part : node.parts) {
      const Piece& next = pieces_[part];
      if (!next.is_pattern || next.groups >= kMaxGroups) {
        others.push_back(expr_of(next, node.at));
        continue;
      }
      if (all.states + next.states > kMaxStates) flush();
      all.pattern += (all.pattern.empty() ? "(?:" : "|") + next.pattern;
      all.states += next.states + 1;
      all.groups = std::max(all.groups, next.groups);
    }
    if (others.empty()) {
      all.pattern += ")", all.groups++;
      return all;
    }
    flush();
    return {.expr = grammar_.choice(others)};
  }

  Piece repeat(const GbnfNode& node) {
    if (node.most == 0) return {true, "", ""};
    const Piece& one = pieces_[node.parts[0]];
    const std::uint64_t times = node.most == kNoLimit ? node.least + 1ull : node.most;
    if (!one.is_pattern || one.groups >= kMaxGroups || one.states * times > kMaxStates)
      return {.expr = front::repeated(grammar_, expr_of(one, node.at), node.least, node.most, name_)};
    Piece made{true, "(?:" + one.pattern + "){" + std::to_string(node.least), {}, one.states * times, one.groups + 1};
    if (node.most == kNoLimit)
      made.pattern += ',';
    else if (node.most != node.least)
      made.pattern += "," + std::to_string(node.most);
    made.pattern += '}';
    return made;
  }

  Expr expr_of(const Piece& piece, std::size_t at) {
    if (!piece.is_pattern) return piece.expr;
    if (piece.literal) return grammar_.literal(*piece.literal);
    const auto [found, is_new] = patterns_.emplace(piece.pattern, grammar_.never());
    if (is_new) {
      auto pattern = front::read_pattern(source_, piece.pattern, front::Texts::kAll, [&](std::size_t) { return at; });
      if (pattern) found->second = grammar_.regex(std::move(*pattern));
    }
    return found->second;
  }

  const GbnfSyntax& syntax_;
  const Source& source_;
  Grammar grammar_;
  front::Rules rules_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<Part> firsts_;  ///< the first node of each rule
  std::vector<Piece> pieces_;
  std::vector<bool> copied_;  ///< the rule's pattern is inlined where it is called
  std::uint64_t copies_ = 0;
  std::map<std::string, Expr> patterns_;
  std::string_view name_;  ///< the rule that is being translated
};

}  // namespace

Gbnf translate_gbnf(const GbnfSyntax& syntax, const Source& source) { return Translator(syntax, source).take(); }

}  // namespace aici::gbnf
