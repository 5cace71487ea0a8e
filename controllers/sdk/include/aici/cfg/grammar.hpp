// grammar.hpp - a context-free grammar, for programs that build grammars.
//
//   cfg::Grammar g;
//   const cfg::Rule list = g.declare("list");
//   g.define(list, g.choice({item, g.sequence({item, g.literal(","), g.call(list)})}));
//   cfg::Parser recognizer = cfg::make_or_fail(std::move(g), list);
//
// cfg::make_or_fail is in aici/cfg/parser.hpp.
//
// Expressions are numbers; equal expressions have equal numbers and may be reused. Any grammar is allowed: ambiguous,
// left-recursive, with rules that match the empty text or refer directly to themselves. Expressions without a text are
// ignored.
//
// The parts of a grammar may be read in different ways (Lexemes). Terminals and rules are read in the way that is set
// when they are added. Rules of one part can call rules of the other, but only from kLongest to kAnywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "aici/detail/cfg/terminals.hpp"
#include "aici/detail/containers.hpp"

namespace aici::cfg {

/// The limits of a grammar and its parser.
struct Limits {
  /// States of all automata, 16 bytes each; repetitions are written out.
  std::uint32_t places = 1u << 20;
  /// Nesting depth of groups; the construction recurses.
  std::uint32_t nesting = 1000;
  /// Members of the sets that make one column, over all readings of an ambiguous text. About 50 ns each.
  std::uint32_t threads = 1u << 16;
  /// Memory for columns and states that is kept between masks. An ambiguous text may need more for each byte.
  std::uint32_t kept_bytes = 4u << 20;
};

/// The number of an expression; valid in one grammar.
using Expr = std::uint32_t;
/// The number of a nonterminal.
using Rule = std::uint32_t;

inline constexpr std::uint32_t kNoLimit = 0xffffffff;

/// What a parser has found out about terminals, in any grammar (parser.hpp).
struct KnownTerminals;

/// One or more parts in any order, with a separator between them. A part occurs once, unless it repeats.
struct AnyOrder {
  struct Part {
    Rule rule;
    bool required = false, repeats = false;
  };
  std::vector<Part> parts;
  /// Its texts are not empty.
  Rule separator;
  /// The number of parts.
  std::uint32_t least = 0, most = kNoLimit;
  /// Whether parts that repeat count at most once, all together, for `least`.
  bool repeats_count_once = false;
  /// Whether required parts come in the order of `parts`. Another part then comes between the required ones that are
  /// around it in `parts`, or after the last one.
  bool required_in_order = false;

  /// The parts that have been written: a bit for each one, then how often parts that repeat have been.
  using Written = std::vector<std::uint32_t>;
  Written none() const { return Written(parts.size() / 32 + 2); }
  /// Returns whether the text may end after these parts.
  bool complete(const Written& written) const;
  /// Returns whether the text can be completed after these parts.
  bool feasible(const Written& written) const;
  /// Returns the parts that may follow by their order: the first, and the one after the last.
  std::pair<std::size_t, std::size_t> next(const Written& written) const;
  /// Adds a part, which is one of `next`; returns false if it may not follow.
  bool add(std::size_t part, Written* written) const;
};

class Grammar {
 public:
  explicit Grammar(Lexemes lexemes = Lexemes::kAnywhere);

  /// Sets how terminals and rules that are added from now on are read.
  void set_lexemes(Lexemes lexemes) { lexemes_ = lexemes; }
  Lexemes lexemes() const { return lexemes_; }

  /// These bytes; an empty string is the empty text.
  Expr literal(std::string_view bytes);
  /// The texts of a regular expression. It may match the empty text.
  Expr regex(regex::Regex regex) { return this->regex(std::make_shared<regex::Regex>(std::move(regex))); }
  /// Where several terminals share a regex, masks within them are computed once.
  Expr regex(std::shared_ptr<regex::Regex> regex);
  /// The nonempty texts of a regular expression that have no shorter nonempty text of it as a prefix.
  Expr early_regex(regex::Regex regex);
  /// A special token, as text of the grammar (functional.hpp, HasTokens).
  Expr token(TokenId token);
  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// Sets the temperature at which tokens of a terminal are sampled (controller.hpp, MidResult::with_temperature).
  void set_temperature(Expr terminal, float temperature);
  /// Every substring of a text, including the empty one.
  Expr substring(Substrings substrings);
  /// The nonempty texts of a regular expression, except `texts`.
  Expr regex_except(std::shared_ptr<regex::Regex> regex, std::span<const std::string> texts);
  /// The nonempty texts of a regular expression with a number of characters between two bounds.
  Expr counted(const Counted& counted);

  /// The empty text.
  Expr empty() const { return kEmpty; }
  /// No text: as an alternative, it has no effect.
  Expr never() const { return kNever; }
  Expr sequence(std::span<const Expr> parts);
  Expr sequence(std::initializer_list<Expr> parts) { return sequence(std::span(parts.begin(), parts.size())); }
  Expr choice(std::span<const Expr> alternatives);
  Expr choice(std::initializer_list<Expr> parts) { return choice(std::span(parts.begin(), parts.size())); }
  Expr optional(Expr expr) { return choice({expr, kEmpty}); }
  Expr star(Expr expr) { return repeat(expr, 0, kNoLimit); }
  Expr plus(Expr expr) { return repeat(expr, 1, kNoLimit); }
  /// From `least` to `most` times; kNoLimit means any number. The expression is expanded, so a long one should be a
  /// rule of its own.
  Expr repeat(Expr expr, std::uint32_t least, std::uint32_t most);

  /// Parts in any order. The parser makes a state for each set of parts that a text has, when it first needs it.
  Expr any_order(AnyOrder order);

  /// Adds a nonterminal. The name is only for messages.
  Rule declare(std::string_view name);
  /// Defines a rule. A second definition adds an alternative.
  void define(Rule rule, Expr expr);
  Expr call(Rule rule);
  /// Declares that the rule's texts are JSON arrays or objects without the opening bracket, and that the items of each
  /// array, and the names of each object, must differ. The grammar must be able to complete each of them after any
  /// item or name, with others than those before. Call the rule only right after a terminal: the bracket, or blanks.
  void make_items_differ(Rule rule) { rules_[rule].items_differ = true; }

  /// The text of a rule is a capture (functional.hpp). Of a rule that is `body` and then `suffix`, it is that of the
  /// body; the suffix is a capture with its own name, unless that is empty.
  struct Captured {
    std::string name, suffix_name;
    std::shared_ptr<regex::Regex> body, suffix;
  };
  void capture(Rule rule, Captured captured);
  const Captured* captured(Rule rule) const {
    const auto found = captured_.find(rule);
    return found == captured_.end() ? nullptr : &found->second;
  }
  bool has_captures() const { return !captured_.empty(); }

  /// Ignores a terminal of kLongest, or a choice of several: it may stand before and after each terminal, and each
  /// call of a rule, in rules of kLongest.
  void ignore(Expr terminal);

  struct Node {
    enum class Kind : std::uint8_t { kEmpty, kNever, kTerminal, kCall, kSequence, kChoice, kRepeat, kAnyOrder };
    Kind kind;
    /// kTerminal, kCall, kAnyOrder: its number in `a`. kSequence, kChoice: two expressions. kRepeat: one in `a`, and the counts.
    std::uint32_t a = 0, b = 0, least = 0, most = 0;
    bool operator==(const Node&) const = default;
  };
  const Node& node(Expr expr) const { return nodes_[expr]; }
  std::size_t num_rules() const { return rules_.size(); }
  const std::string& name(Rule rule) const { return rules_[rule].name; }
  Lexemes lexemes(Rule rule) const { return rules_[rule].lexemes; }
  bool items_differ(Rule rule) const { return rules_[rule].items_differ; }
  /// Returns the rule's body; never() if it is not defined.
  Expr body(Rule rule) const { return rules_[rule].body; }
  const AnyOrder& order(std::uint32_t number) const { return orders_[number]; }
  Terminals& terminals() { return terminals_; }
  const Terminals& terminals() const { return terminals_; }
  const std::vector<Terminal>& ignored() const { return ignored_; }

  /// Forgets everything but the terminals. `known` is what a parser knows about them.
  void forget_rules(std::shared_ptr<KnownTerminals> known);
  /// Returns what is known about the terminals, for the first parser; null if that is nothing.
  std::shared_ptr<KnownTerminals> take_known() { return std::exchange(known_, nullptr); }

  /// Returns an order without the parts that have no text; nothing if it then has no text itself.
  std::optional<AnyOrder> possible(const AnyOrder& order, const std::vector<bool>& productive) const;
  /// Returns, for each expression, whether it has a text.
  std::vector<bool> productive() const { return solve(false); }
  /// Returns, for each expression, whether it has the empty text.
  std::vector<bool> nullable() const { return solve(true); }
  /// Returns whether `start`, and every text of which a rule has read a part, can be completed without these terminals.
  bool completes_without(Rule start, std::span<const Terminal> terminals) const;

 private:
  static constexpr Expr kEmpty = 0, kNever = 1;
  struct Named {
    std::string name;
    Lexemes lexemes;
    Expr body = kNever;
    bool items_differ = false;
  };

  Expr add(const Node& node);
  /// Returns the expression of a new terminal.
  Expr terminal(Terminal made) {
    terminals_.set_lexemes(made, lexemes_);
    return add({Node::Kind::kTerminal, made});
  }
  /// Returns the bytes of a literal; empty if the expression is not a literal.
  std::string_view literal_of(Expr expr) const;
  /// Computes the least fixed point: for each expression, whether it has a text without terminals of `without`, or the
  /// empty text.
  std::vector<bool> solve(bool only_empty, std::span<const Terminal> without = {}) const;

  Lexemes lexemes_;
  Terminals terminals_;
  std::shared_ptr<KnownTerminals> known_;
  std::vector<Node> nodes_;
  HashIndex ids_;
  /// The text of each literal, by terminal; empty for other terminals.
  std::vector<std::string> literals_;
  HashIndex literal_ids_;
  std::vector<Named> rules_;
  std::vector<AnyOrder> orders_;
  std::unordered_map<Rule, Captured> captured_;
  std::vector<Terminal> ignored_;
  std::vector<TokenId> tokens_;
};

}  // namespace aici::cfg
