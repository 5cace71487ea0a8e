// columns.hpp - the parser's tables: a grammar as automata that call each other, and the readings of a text between two
// terminals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/detail/containers.hpp"

namespace aici::cfg {

/// The number of a place in an automaton.
using Place = std::uint32_t;
/// The end of a rule, and a place without any text.
inline constexpr Place kEnd = 0, kNowhere = 1;

/// A grammar as automata that call each other: a recursive transition network without left recursion.
///
/// Each rule is a nondeterministic automaton whose edges are terminals and calls of rules. Equal suffixes are shared,
/// also between rules. Rules that are left-recursive, directly or through other rules, are rewritten: `list : list ","
/// item | item` becomes the loop `item ("," item)*`. So a walk along calls from the start of a rule ends, which is all
/// that the columns need.
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
  /// Without the parts that have no text.
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

/// The number of a column; 0 has no thread.
using Column = std::uint32_t;

/// Earley's columns, each stored once.
///
/// A column is a set of threads. A thread is a place in the network, and a frame: where to continue after the end of
/// the rule. A frame is also a set of threads: those of all callers at the place in the text where the rule was
/// called. Equal sets have equal numbers, whatever the text was, so results about a column are cached for all texts
/// that lead to it. After each element of a list, a text is in the same column as after the first. This holds for
/// left- and right-recursive lists: a tail call passes on the frames of its caller, and the network has no left
/// recursion.
class Columns {
 public:
  Columns(Network* network, const Grammar* grammar, const Limits& limits);

  /// The column of the empty text.
  Column initial();
  /// Returns whether the text may end here.
  bool accepting(Column column) const;
  /// Returns the possible terminals that are read in this way, sorted.
  std::span<const Terminal> viable(Column column, Lexemes lexemes);

  /// The column after some terminals that end at the same place: `add` for each column where they began, then `join`.
  void add(Column column, std::span<const Terminal> terminals);
  /// To `join` this one with others. (That must not wait for any call of this class but those of `add`.)
  void add(Column column);
  Column join();
  /// As above, but stores in *arrays the column of all readings in which an array with different items begins here.
  Column join(Column* arrays);
  /// The column after any text of a rule of kAnywhere that begins here and that a rule of kLongest calls; 0 if none
  /// does.
  Column after_calls(Column column);

  std::size_t size() const { return columns_.size(); }
  std::size_t bytes() const;
  /// Drops all columns except those in `kept`, which get new numbers.
  void keep_only(std::span<Column> kept);
  const char* failure() const { return too_many_ ? "the text has too many readings for the engine" : nullptr; }
  void forget_failure() { too_many_ = false; }

 private:
  /// 0 = the end of the text.
  using Frame = std::uint32_t;
  struct Thread {
    Place place;
    Frame frame;
    auto operator<=>(const Thread&) const = default;
  };
  /// A sorted set, in `threads_`.
  struct Set {
    std::uint32_t first, count;
  };
  struct Step {
    Terminal terminal;
    Thread next;
    auto operator<=>(const Step&) const = default;
  };
  struct Data {
    Set threads;
    std::uint32_t first_step = kUnknown, num_steps = 0;
    /// Those of kAnywhere before those of kLongest.
    std::uint32_t first_viable = 0, first_longest = 0, end_viable = 0;
    Set after_calls{0, 0};
  };
  static constexpr std::uint32_t kUnknown = 0xffffffff;

  std::span<const Thread> threads(Set set) const { return {threads_.data() + set.first, set.count}; }
  Frame frame(std::vector<Thread>& threads);
  template <class Sets, class SetOf>
  std::uint32_t intern(std::span<const Thread> threads, HashIndex& ids, Sets& sets, SetOf set_of);
  void push(Thread thread);
  void finish_rules();
  Column column_of(std::span<const Thread> threads);
  void call(Rule rule, Place next, Frame frame);
  void enter(Network::Exits exits, Frame frame);
  void find_steps(Column column);

  Network* network_;
  const Grammar* grammar_;
  std::vector<Terminal> ignored_;
  std::uint32_t most_threads_;
  std::vector<Thread> threads_;
  std::vector<Set> frames_;
  std::vector<Data> columns_;
  HashIndex frame_ids_, column_ids_;
  std::vector<Step> steps_;
  std::vector<Terminal> viable_;
  bool too_many_ = false;

  /// What `join` will make a column of, each once; hashed when there are many.
  std::vector<Thread> next_;
  HashIndex next_ids_;
  /// Of `find_steps`: the callers of each rule, and the ranks of those that have some, as a heap.
  std::vector<std::vector<Thread>> callers_;
  std::vector<std::uint32_t> called_;
  std::vector<Step> found_;
  std::vector<Thread> after_calls_;
};

}  // namespace aici::cfg
