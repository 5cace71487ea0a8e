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
  /// `joins_literals`: literals that follow each other are one. Not where something may stand between them.
  explicit Grammar(bool joins_literals = true);

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

  /// Those of the texts of a regular expression, in JSON's spelling, that are not empty and have at most so many
  /// characters (counted.hpp). Nothing if the expression is too large for it.
  std::optional<Expr> regex_at_most(regex::Regex regex, std::uint32_t most);

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

  /// A terminal that may stand between any two others, before the first and after the last one.
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
    Expr body;
  };

  Expr add(const Node& node);
  Expr terminal(Terminal terminal) { return add({Node::Kind::kTerminal, terminal}); }
  /// The least set that terminals are in or not, and what is made of its members.
  std::vector<bool> solve(bool only_empty) const;

  bool joins_literals_;
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
