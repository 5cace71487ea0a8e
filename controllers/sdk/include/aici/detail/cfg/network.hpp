// network.hpp - a grammar as automata that call each other: a recursive transition network without left recursion.
//
// Each rule is a nondeterministic automaton whose edges are terminals and calls of rules. Equal suffixes are shared,
// also between rules. Rules that are left-recursive, directly or through other rules, are rewritten: `list : list ","
// item | item` becomes the loop `item ("," item)*`. So a walk along calls from the start of a rule ends, which is all
// that the engine (columns.hpp) needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/cfg/limits.hpp"

namespace aici::cfg {

/// The number of a place in an automaton.
using Place = std::uint32_t;
/// The end of a rule, and a place without any text.
inline constexpr Place kEnd = 0, kNowhere = 1;

class Network {
 public:
  struct Edge {
    std::uint32_t label;  ///< a terminal, or a rule
    Place next;
  };
  /// The edges that leave a place directly: `first` to `calls` are terminals, `calls` to `last` are rules.
  struct Exits {
    std::uint32_t first, calls, last;
    bool ends;  ///< whether the rule may end here
    /// Returns whether only the end is possible.
    bool only_end() const { return ends && first == last; }
  };

  /// Returns an error message, or null.
  const char* build(const Grammar& grammar, Rule start, const Limits& limits);

  /// The place where a text begins: a call of the start rule.
  Place start() const { return start_; }
  const Exits& exits(Place place) {
    if (exits_[place].first == kUnknown) find_exits(place);
    return exits_[place];
  }
  /// Returns whether a call that continues here is a tail call. Sets of parts are not examined.
  bool is_tail(Place next) { return !is_set(places_[next].kind) && exits(next).only_end(); }
  /// Returns the exits of a rule's first place, without its end: callers skip an empty rule by themselves.
  const Exits& entry(Rule rule) { return exits(entries_[rule]); }
  const Edge& edge(std::uint32_t number) const { return edges_[number]; }
  /// Rules that are called from the entry of another one have a higher rank.
  std::uint32_t rank(Rule rule) const { return ranks_[rule]; }
  Rule rule_of_rank(std::uint32_t rank) const { return by_rank_[rank]; }
  std::size_t num_rules() const { return entries_.size(); }
  /// Returns whether the place is in a rule of Lexemes::kLongest; also true for the end of the text if the start rule
  /// is.
  bool longest(Place place) const { return places_[place].longest; }
  /// Returns whether an array with different items begins here (Grammar::make_items_differ).
  bool begins_array(Place place) const {
    return places_[place].kind == Node::Kind::kCall && is_array_[places_[place].label];
  }
  bool has_arrays() const { return has_arrays_; }

  /// Returns whether the place was made while a text was read, for a set of parts (Grammar::any_order).
  bool is_made(Place place) const { return place >= built_places_; }
  /// Drops all such places except those in `kept`, which get new numbers.
  void keep_only(std::span<Place> kept);
  /// Returns the size of such places.
  std::size_t bytes() const {
    return (places_.size() - built_places_) * (sizeof(Node) + sizeof(Exits) + sizeof(Place)) + written_.size() * 4 +
           (edges_.size() - built_edges_) * sizeof(Edge) + set_ids_.bytes();
  }
  const char* failure() const { return problem_; }

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffff;
  struct Node {
    enum class Kind : std::uint8_t { kEnd, kNowhere, kTerminal, kCall, kSplit, kBeforePart, kAfterPart };
    Kind kind;
    std::uint32_t label = 0;  ///< a terminal, a rule, or a number in `orders_`
    /// Next places; a split leads to both. Of kBeforePart and kAfterPart: the number in `written_` of what is written.
    Place a = kNowhere, b = kNowhere;
    bool longest = false;
    bool operator==(const Node&) const = default;
  };

  /// Parts in any order, and what follows them.
  struct Order {
    std::uint32_t parts;  ///< number in `parts_`
    Place next;
  };
  static bool is_set(Node::Kind kind) { return kind == Node::Kind::kBeforePart || kind == Node::Kind::kAfterPart; }

  Place add(Node node);
  Place add_set(Node::Kind kind, std::uint32_t order, const AnyOrder::Written& written, bool longest);
  AnyOrder::Written written(const Node& node) const;
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
  std::vector<bool> empty_rules_;  ///< by rule: whether it may be empty
  std::vector<bool> is_array_;     ///< by rule: Grammar::items_differ
  bool has_arrays_ = false;
  std::vector<std::uint32_t> ranks_;
  std::vector<Rule> by_rank_;
  std::vector<Exits> exits_;
  /// Without the parts that have no text. The separators are numbers of terminals.
  std::vector<AnyOrder> parts_;
  std::vector<Order> orders_;
  std::vector<std::uint32_t> written_;
  HashIndex set_ids_;
  /// Sizes after `build`; what follows is made while texts are read.
  std::size_t built_places_ = 0, built_edges_ = 0, built_written_ = 0;
  std::vector<Place> seen_at_;  ///< the place for which `find_exits` has last visited each place
  std::vector<Edge> edges_;
  Place start_ = kNowhere;
  bool longest_ = false;  ///< Lexemes of the rule that is being built
  const char* problem_ = nullptr;
};

}  // namespace aici::cfg
