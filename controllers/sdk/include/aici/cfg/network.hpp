// network.hpp - a grammar as automata that call each other: a recursive transition network without left recursion.
//
// Each rule is a nondeterministic automaton whose edges are terminals and calls of rules. Equal ends are shared, also
// between rules. Rules that begin with a call of themselves, at once or through others, are rewritten: what is left
// of `list : list "," item | item` is the loop `item ("," item)*`. So a walk along calls from the start of a rule
// ends, which is all that the engine (columns.hpp) needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/cfg/grammar.hpp"

namespace aici::cfg {

/// The number of a place in an automaton.
using Place = std::uint32_t;
/// The end of a rule, and a place from which nothing comes.
inline constexpr Place kEnd = 0, kNowhere = 1;

struct Limits {
  /// Places of all automata, 16 bytes each; repetitions are written out.
  std::uint32_t places = 1u << 20;
  /// Depth of groups in groups: building recurses.
  std::uint32_t nesting = 1000;
  /// Members of the sets that make one column: what an ambiguous text can be in all its readings. About 50 ns each.
  std::uint32_t threads = 1u << 16;
  /// Memory of columns and states that is kept from mask to mask: an ambiguous text may need more for each byte.
  std::uint32_t kept_bytes = 8u << 20;
};

class Network {
 public:
  struct Edge {
    std::uint32_t label;  ///< a terminal, or a rule
    Place next;
  };
  /// What can be read from a place without reading anything before: edges `first` to `calls` are of terminals, those
  /// up to `last` of rules.
  struct Exits {
    std::uint32_t first, calls, last;
    bool ends;  ///< or the rule ends here
    /// Nothing but the end is possible: who calls here may hand over its own caller.
    bool only_end() const { return ends && first == last; }
  };

  /// Returns what is wrong, or null.
  const char* build(const Grammar& grammar, Rule start, const Limits& limits);

  /// Where a text begins: a call of the start rule.
  Place start() const { return start_; }
  const Exits& exits(Place place) {
    if (exits_[place].first == kUnknown) find_exits(place);
    return exits_[place];
  }
  /// The exits of the first place of a rule, without its end: who calls it passes by where it is empty.
  const Exits& entry(Rule rule) { return exits(entries_[rule]); }
  const Edge& edge(std::uint32_t number) const { return edges_[number]; }
  /// Rules that are called from the entry of another one have a higher rank.
  std::uint32_t rank(Rule rule) const { return ranks_[rule]; }
  Rule rule_of_rank(std::uint32_t rank) const { return by_rank_[rank]; }
  std::size_t num_rules() const { return entries_.size(); }
  /// Is it in a rule of Lexemes::kLongest? So is the end of the text if the start rule is.
  bool longest(Place place) const { return places_[place].longest; }

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffff;
  struct Node {
    enum class Kind : std::uint8_t { kEnd, kNowhere, kTerminal, kCall, kSplit };
    Kind kind;
    std::uint32_t label = 0;
    Place a = kNowhere, b = kNowhere;  ///< where it leads; a split leads to both
    bool longest = false;
    bool operator==(const Node&) const = default;
  };

  Place add(Node node);
  void enter(Rule rule) { longest_ = grammar_->lexemes(rule) == Lexemes::kLongest; }
  Place open();
  Place build(Expr expr, Place next, std::uint32_t depth);
  Place build_repeat(const Grammar::Node& node, Place next, std::uint32_t depth);
  Place split(Place a, Place b);
  void find_exits(Place place);
  void store(Place place, std::vector<Edge> terminals, std::vector<Edge> calls, bool ends);

  // left_recursion.cpp
  class Copies;
  void remove_left_recursion();
  void rewrite(std::span<const Rule> members);
  void fill(Place place, std::span<const Place> targets);

  const Grammar* grammar_ = nullptr;
  Limits limits_;
  std::vector<bool> productive_, nullable_;
  std::vector<Node> places_;
  HashIndex ids_;
  std::vector<Place> entries_;
  std::vector<bool> empty_rules_;  ///< which may be empty
  std::vector<std::uint32_t> ranks_;
  std::vector<Rule> by_rank_;
  std::vector<Exits> exits_;
  std::vector<Place> seen_at_;  ///< for which place `find_exits` has seen each
  std::vector<Edge> edges_;
  Place start_ = kNowhere;
  bool longest_ = false;  ///< of the rule whose places are being made
  const char* problem_ = nullptr;
};

}  // namespace aici::cfg
