// columns.hpp - the readings of a text between two terminals: Earley's columns, each stored once.
//
// A column is a set of threads. A thread is a place in the network, and a frame: where to continue after the end of
// the rule. A frame is also a set of threads: those of all callers at the place in the text where the rule was
// called. Equal sets have equal numbers, whatever the text was, so results about a column are cached for all texts
// that lead to it. After each element of a list, a text is in the same column as after the first. This holds for
// left- and right-recursive lists: a tail call passes on the frames of its caller, and the network has no left
// recursion.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aici/detail/cfg/network.hpp"
#include "aici/detail/hash_index.hpp"

namespace aici::cfg {

/// The number of a column; 0 has no thread.
using Column = std::uint32_t;

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
