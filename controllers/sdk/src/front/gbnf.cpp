#include "aici/gbnf/gbnf.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/types.hpp"
#include "rules.hpp"

namespace aici::gbnf {

namespace {

using cfg::Expr;
using cfg::Grammar;
using cfg::kNoLimit;
using front::Source;

/// The number of a node.
using Part = std::uint32_t;

/// A node of the syntax tree.
struct Node {
  enum class Kind : std::uint8_t {
    kLiteral,   ///< `text`
    kClass,     ///< `text`: one character, as a regular expression
    kCall,      ///< `text`: the name of a rule
    kSequence,  ///< `parts`
    kChoice,    ///< `parts`
    kTokens,    ///< one of `tokens`, which are special
    kRepeat,    ///< parts[0] from `least` to `most` times
    kGroup,     ///< parts[0], in deeply nested brackets
  };
  Kind kind;
  std::size_t at = 0;
  std::string text;
  std::vector<Part> parts{};
  std::uint32_t least = 0, most = 0;
  std::vector<TokenId> tokens{};
};

struct Rule {
  std::string name;
  std::size_t at;
  Part body;
};

using Kind = Node::Kind;
using Nest = front::Nest<Part>;

struct Syntax {
  std::vector<Node> nodes;  ///< a node comes after its parts
  std::vector<Rule> rules;  ///< each name occurs once
};

constexpr std::string_view kLetters = "nrtvfba\\\"'[]-^/", kMeanings = "\n\r\t\v\f\b\a\\\"'[]-^/";

char32_t take_character(Source& source) {
  const std::size_t at = source.at();
  if (!source.accept("\\")) return source.take_character();
  if (source.accept("x")) return front::take_scalar(source, 2, at);
  if (source.accept("u")) return front::take_scalar(source, 4, at);
  if (source.accept("U")) return front::take_scalar(source, 8, at);
  if (source.accept("0")) return U'\0';
  const std::size_t which = source.at_end() ? std::string_view::npos : kLetters.find(source.peek());
  if (which == std::string_view::npos)
    source.fail(at, "unknown escape; allowed are \\n \\r \\t \\v \\f \\b \\a \\0 \\\\ \\\" \\' \\[ \\] \\- \\^ "
                    "\\/, \\x41, \\u0041 and \\U00000041");
  source.move(1);
  return static_cast<char32_t>(kMeanings[which]);
}

/// Reads "..." and replaces its escapes.
std::string take_literal(Source& source) {
  const std::size_t begin = source.at();
  source.move(1);
  std::string found;
  while (!source.accept("\"")) {
    if (source.at_end() || source.peek() == '\n') source.fail(begin, "this text is not closed: its quote is missing");
    front::append_utf8(take_character(source), &found);
  }
  return found;
}

/// Reads [...] and translates it into a class of a regular expression.
std::string take_class(Source& source) {
  const std::size_t begin = source.at();
  source.move(1);
  std::string found = source.accept("^") ? "[^" : "[";
  const std::size_t empty = found.size();
  while (!source.accept("]")) {
    const std::size_t at = source.at();
    if (source.at_end() || source.peek() == '\n') source.fail(begin, "this class is not closed: `]` is missing");
    const char32_t low = take_character(source);
    found += front::pattern_of(low);
    if (source.peek() != '-' || source.peek(1) == ']') continue;
    source.move(1);
    if (source.at_end() || source.peek() == '\n') source.fail(begin, "this class is not closed: `]` is missing");
    const char32_t high = take_character(source);
    if (high < low) source.fail(at, "this range is empty: its first character comes after its last");
    found += '-';
    found += front::pattern_of(high);
  }
  if (found.size() == empty) source.fail(begin, "this class is empty; any character is `.`");
  return found + "]";
}

/// Maximum count of a repetition, since counted repetitions are expanded.
constexpr std::uint32_t kMaxTimes = 10'000;

bool is_name(char c) { return front::is_word(c) || c == '-'; }

/// Reads the syntax tree. Fails the controller if the text is not in the syntax.
class Reader {
 public:
  explicit Reader(Source& source) : source_(source) {
    for (skip_blanks(); !source_.at_end(); skip_blanks()) read_rule();
  }
  Syntax take() { return std::move(out_); }

 private:
  void skip_blanks() {
    for (;;) {
      const char c = source_.peek();
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
        source_.move(1);
      else if (c == '#')
        source_.find("\n");
      else
        return;
    }
  }

  std::string_view take_name() {
    const std::size_t from = source_.at();
    while (is_name(source_.peek())) source_.move(1);
    return source_.since(from);
  }

  /// Returns whether a rule begins here: a name with ::= after it. A rule may therefore extend over several lines.
  bool at_rule() {
    const std::size_t here = source_.at();
    const bool named = !take_name().empty();
    skip_blanks();
    const bool found = named && source_.next_is("::=");
    source_.go_to(here);
    return found;
  }

  void read_rule() {
    const std::size_t at = source_.at();
    if (!at_rule()) source_.fail_here("a rule, `name ::= ...`,");
    const std::string name(take_name());
    skip_blanks();
    source_.accept("::=");
    if (const auto [known, is_new] = places_.emplace(name, at); !is_new)
      source_.fail(at, "there is a rule " + name + " already, in " + source_.place(known->second));
    const Part body = read_body(at);
    out_.rules.push_back({name, at, body});
  }

  Part add(Node node) {
    out_.nodes.push_back(std::move(node));
    return static_cast<Part>(out_.nodes.size() - 1);
  }

  Part read_body(std::size_t rule_at) {
    Nest nest;
    for (;;) {
      skip_blanks();
      const std::size_t at = source_.at();
      const char c = source_.peek();
      if (source_.accept("(")) {
        nest.open(source_, ')', at);
      } else if (source_.accept("|")) {
        nest.next_alternative();
      } else if (nest.inside() && c == ')') {
        source_.move(1);
        Nest::Level level = nest.pop();
        Part inside = choice(std::move(level), level.at);
        if (nest.is_deep()) inside = add({Kind::kGroup, level.at, {}, {inside}});
        nest.sequence().push_back(read_postfix(inside));
      } else if (!at_rule() && !source_.at_end()) {
        nest.sequence().push_back(read_postfix(read_atom(c)));
      } else if (nest.inside()) {
        nest.fail_open(source_);
      } else {
        return choice(nest.pop(), rule_at);
      }
    }
  }

  Part choice(Nest::Level&& level, std::size_t at) {
    std::vector<Part> all;
    for (auto& sequence : level.alternatives)
      all.push_back(sequence.size() == 1 ? sequence[0] : add({Kind::kSequence, at, {}, std::move(sequence)}));
    return all.size() == 1 ? all[0] : add({Kind::kChoice, at, {}, std::move(all)});
  }

  Part read_atom(char first) {
    const std::size_t at = source_.at();
    if (first == '"') return add({Kind::kLiteral, at, take_literal(source_)});
    if (first == '[') return add({Kind::kClass, at, take_class(source_)});
    if (source_.accept(".")) return add({Kind::kClass, at, "(?s:.)"});
    if (is_name(first)) return add({Kind::kCall, at, std::string(take_name())});
    if (first == '<') {
      Node node{Kind::kTokens, at};
      node.tokens = front::take_tokens(source_, &node.text);
      if (node.tokens.empty()) node.kind = Kind::kLiteral;
      return add(std::move(node));
    }
    if (first == '!')
      source_.fail(at, "all tokens but one (`!`) are not supported: write the texts that may stand here, such as [^<]*");
    source_.fail_here("a text, a class, a name, a parenthesis or `|`");
  }

  Part read_postfix(Part part) {
    for (;;) {
      skip_blanks();
      const std::size_t at = source_.at();
      std::uint32_t least = 0, most = cfg::kNoLimit;
      if (source_.accept("{"))
        read_counts(at, &least, &most);
      else if (source_.accept("?"))
        most = 1;
      else if (source_.accept("+"))
        least = 1;
      else if (!source_.accept("*"))
        return part;
      part = add({Kind::kRepeat, at, {}, {part}, least, most});
    }
  }

  void read_counts(std::size_t at, std::uint32_t* least, std::uint32_t* most) {
    if (!front::is_digit(source_.peek())) source_.fail(at, "a repetition is {3}, {3,} or {3,5}");
    *least = front::take_number(source_, kMaxTimes);
    if (!source_.accept(","))
      *most = *least;
    else if (front::is_digit(source_.peek()))
      *most = front::take_number(source_, kMaxTimes);
    if (!source_.accept("}")) source_.fail(at, "a repetition is {3}, {3,} or {3,5}");
    if (*most < *least) source_.fail(at, "this repetition is empty: its minimum is above its maximum");
  }

  Source& source_;
  Syntax out_;
  std::map<std::string, std::size_t> places_;
};

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

/// Translates the syntax tree for the context-free engine. Fails the controller if a name has no rule or the grammar
/// has no text. Writes warnings to the log.
///
/// The only terminals of GBNF are characters. Regular parts of a grammar become patterns: a rule that calls only
/// regular rules is inlined where it is called, and adjacent regular parts become one pattern. The texts stay the same,
/// and the engine reads a word at a time instead of a character.
class Translator {
 public:
  Translator(const Syntax& syntax, const Source& source)
      : syntax_(syntax), source_(source), rules_(source, grammar_), pieces_(syntax.nodes.size()),
        copied_(syntax.rules.size()) {
    declare_rules();
    for (const std::uint32_t rule : in_order()) translate(rule);
    rules_.check_texts(kStart);
  }

  cfg::Parser take() {
    const cfg::Rule start = rules_.find(kStart)->rule;
    return cfg::make_or_fail(std::move(grammar_), start);
  }

 private:
  void declare_rules() {
    Part part = 0;  // the nodes of a rule have consecutive numbers, the body last
    for (std::uint32_t number = 0; number < syntax_.rules.size(); number++) {
      const Rule& rule = syntax_.rules[number];
      numbers_.emplace(rule.name, number);
      rules_.enter(rule.name, rule.at);
      for (firsts_.push_back(part); part <= rule.body; part++)
        if (const Node& node = syntax_.nodes[part]; node.kind == Kind::kCall) rules_.call(node.text, node.at);
    }
    rules_.check_names(kStart);
  }

  /// Returns rules after the rules that they call. Recursive rules come last.
  std::vector<std::uint32_t> in_order() const {
    std::vector<std::uint32_t> order, open(syntax_.rules.size());
    std::vector<std::vector<std::uint32_t>> users(syntax_.rules.size());
    for (std::uint32_t rule = 0; rule < syntax_.rules.size(); rule++)
      for (Part part = firsts_[rule]; part <= syntax_.rules[rule].body; part++)
        if (const Node& node = syntax_.nodes[part]; node.kind == Kind::kCall)
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
    const Rule& rule = syntax_.rules[number];
    name_ = rule.name;
    for (Part part = firsts_[number]; part <= rule.body; part++) pieces_[part] = piece_of(syntax_.nodes[part]);
    Piece& body = pieces_[rule.body];
    copied_[number] = body.is_pattern && body.states <= kMaxCopied && rule.name != kStart;
    rules_.enter(rule.name, rule.at);
    rules_.define(expr_of(body, rule.at));
  }

  Piece piece_of(const Node& node) {
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

  Piece call(const Node& node) {
    const std::uint32_t number = numbers_.find(node.text)->second;
    const Piece& body = pieces_[syntax_.rules[number].body];
    if (copied_[number] && copies_ + body.states <= kMaxCopies) {
      copies_ += body.states;
      return body;
    }
    return {.expr = grammar_.call(rules_.find(node.text)->rule)};
  }

  Piece sequence(const Node& node) {
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
  Piece choice(const Node& node) {
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

  Piece repeat(const Node& node) {
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

  const Syntax& syntax_;
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

cfg::Parser make_or_fail(std::string_view grammar) {
  Source source(grammar);
  const Syntax syntax = Reader(source).take();
  return Translator(syntax, source).take();
}

}  // namespace aici::gbnf
