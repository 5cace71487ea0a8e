// grammar.hpp - a context-free grammar, as front ends write it.
//
//   cfg::Grammar g;
//   const cfg::Rule list = g.declare("list");
//   g.define(list, g.choice({item, g.sequence({item, g.literal(","), g.call(list)})}));
//   cfg::Parser recognizer = cfg::make_or_fail(std::move(g), list);
//
// Expressions are numbers; equal ones are the same, and may be used again and again. Any grammar will do: ambiguous
// ones, rules that begin with themselves, that match nothing or stand for themselves. What no text comes from is left
// out.
//
// A grammar may have parts that are read in different ways (Lexemes): what is written while a way is set is of that
// part, its terminals and its rules. From one part to the other only calls lead, and only from kLongest to kAnywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aici/cfg/terminals.hpp"
#include "aici/hash_index.hpp"

namespace aici::cfg {

/// The number of an expression; valid in one grammar.
using Expr = std::uint32_t;
/// The number of a nonterminal.
using Rule = std::uint32_t;

inline constexpr std::uint32_t kNoLimit = 0xffffffff;

class Grammar {
 public:
  explicit Grammar(Lexemes lexemes = Lexemes::kAnywhere);

  /// How what is written from now on is read.
  void set_lexemes(Lexemes lexemes) { lexemes_ = lexemes; }
  Lexemes lexemes() const { return lexemes_; }

  /// These bytes; none at all is the empty text.
  Expr literal(std::string_view bytes);
  /// The texts of a regular expression. It may match the empty text.
  Expr regex(regex::Regex regex);
  /// The texts of a regular expression that are not empty and do not begin with a shorter one that is not.
  Expr early_regex(regex::Regex regex);
  /// Every substring of a text, the empty one too.
  Expr substring(Substrings substrings);
  /// The texts of a regular expression that are not empty and none of `texts`.
  Expr regex_except(regex::Regex regex, std::span<const std::string> texts);
  /// The texts of a regular expression that are not empty and have a number of characters between two bounds.
  Expr counted(const Counted& counted);

  /// The empty text.
  Expr empty() const { return kEmpty; }
  /// No text at all: an alternative that is not there.
  Expr never() const { return kNever; }
  Expr sequence(std::span<const Expr> parts);
  Expr sequence(std::initializer_list<Expr> parts) { return sequence(std::span(parts.begin(), parts.size())); }
  Expr choice(std::span<const Expr> alternatives);
  Expr choice(std::initializer_list<Expr> parts) { return choice(std::span(parts.begin(), parts.size())); }
  Expr optional(Expr expr) { return choice({expr, kEmpty}); }
  Expr star(Expr expr) { return repeat(expr, 0, kNoLimit); }
  Expr plus(Expr expr) { return repeat(expr, 1, kNoLimit); }
  /// From `least` to `most` times, kNoLimit = any number. The expression is written out as often: anything long
  /// should be a rule of its own.
  Expr repeat(Expr expr, std::uint32_t least, std::uint32_t most);

  /// A new nonterminal. The name is for messages only.
  Rule declare(std::string_view name);
  /// What it stands for. Again: one more alternative.
  void define(Rule rule, Expr expr);
  Expr call(Rule rule);

  /// A terminal, or a choice of some, of kLongest: it may stand before and after each terminal and each call of a rule
  /// that stand in rules of kLongest.
  void ignore(Expr terminal);

  struct Node {
    enum class Kind : std::uint8_t { kEmpty, kNever, kTerminal, kCall, kSequence, kChoice, kRepeat };
    Kind kind;
    /// kTerminal, kCall: its number in `a`. kSequence, kChoice: two expressions. kRepeat: one in `a`, and how often.
    std::uint32_t a = 0, b = 0, least = 0, most = 0;
    bool operator==(const Node&) const = default;
  };
  const Node& node(Expr expr) const { return nodes_[expr]; }
  std::size_t num_rules() const { return rules_.size(); }
  const std::string& name(Rule rule) const { return rules_[rule].name; }
  Lexemes lexemes(Rule rule) const { return rules_[rule].lexemes; }
  /// never() if it has not been defined.
  Expr body(Rule rule) const { return rules_[rule].body; }
  Terminals& terminals() { return terminals_; }
  const Terminals& terminals() const { return terminals_; }
  const std::vector<Terminal>& ignored() const { return ignored_; }

  /// For each expression: does a text come from it?
  std::vector<bool> productive() const { return solve(false); }
  /// For each expression: may it be the empty text?
  std::vector<bool> nullable() const { return solve(true); }

 private:
  static constexpr Expr kEmpty = 0, kNever = 1;
  struct Named {
    std::string name;
    Lexemes lexemes;
    Expr body = kNever;
  };

  Expr add(const Node& node);
  /// The expression of a terminal that has just been made.
  Expr terminal(Terminal made) {
    terminals_.set_lexemes(made, lexemes_);
    return add({Node::Kind::kTerminal, made});
  }
  /// Of a literal; empty if the expression is none.
  std::string_view literal_of(Expr expr) const;
  /// The least set that terminals are in or not, and what is made of its members.
  std::vector<bool> solve(bool only_empty) const;

  Lexemes lexemes_;
  Terminals terminals_;
  std::vector<Node> nodes_;
  HashIndex ids_;
  /// The text of each literal, by terminal; of others nothing.
  std::vector<std::string> literals_;
  HashIndex literal_ids_;
  std::vector<Named> rules_;
  std::vector<Terminal> ignored_;
};

}  // namespace aici::cfg
