// scanner.hpp - reads several terminals at once, byte by byte: one deterministic automaton for each set of them.
//
// A state consists of the terminals that are still possible, each with its own state. States and their rows of next
// states are built lazily and shared by all columns that allow the same terminals.
//
// Where a lexeme is complete but might go on, what follows it is read as well. Such a state also has a guard: the longer
// lexemes, each with its own state. It is dead as soon as one of them is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "aici/detail/byte_set.hpp"
#include "aici/detail/cfg/terminals.hpp"
#include "aici/detail/hash_index.hpp"

namespace aici::cfg {

class Scanner {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0;
  static constexpr std::uint32_t kBits = 14, kMax = 1u << kBits;

  explicit Scanner(Terminals* terminals);
  /// The same for terminals that have moved.
  Scanner(Scanner&& other, Terminals* terminals) : Scanner(std::move(other)) { terminals_ = terminals; }
  Scanner(Scanner&&) = default;
  Scanner& operator=(Scanner&&) = default;

  /// The state before the first byte of any of these terminals, which are sorted and read in the same way (Lexemes).
  State start(std::span<const Terminal> terminals);
  /// The state `fresh` after the text of another state: with the guard of that and, if it reads lexemes, guarded by
  /// those that may still become longer.
  State follow(State fresh, State before);
  /// Returns kDead if none of the terminals continues with the byte. kDead stays dead.
  State append(State state, std::uint8_t byte) {
    const std::uint16_t next = table_[state << 8 | byte];
    return next != kUnknown ? next : append_slowly(state, byte);
  }
  /// Returns whether these are terminals of Lexemes::kLongest.
  bool longest(State state) const { return rows_[state].longest; }
  bool guarded(State state) const { return rows_[state].guard != 0; }
  /// Returns whether there has been a guard.
  bool any_guarded() const { return guards_.size() > 1; }
  State without_guard(State state) { return with_guard(state, 0); }
  /// Returns whether the last byte of some text has made a complete lexeme an incomplete one.
  bool overshot(State state) const { return rows_[state].overshot; }
  /// Returns whether no byte has been read.
  bool fresh(State state) const { return rows_[state].fresh; }
  /// Returns whether one of the terminals is complete.
  bool accepting(State state) const { return rows_[state].num_accepted != 0; }
  /// Returns the complete terminals.
  std::span<const Terminal> accepted(State state) const {
    return {accepted_.data() + rows_[state].first_accepted, rows_[state].num_accepted};
  }
  /// Returns whether this terminal is complete, or may become complete.
  bool reads(State state, Terminal terminal) const;
  /// Returns the highest temperature of the terminals that may continue, or begin here; 0 if none has one.
  float temperature(State state) const;
  /// Returns whether a byte may follow.
  bool goes_on(State state) const { return rows_[state].count != 0; }
  /// As Terminals::without_names; kDead if names besides the known ones are not possible.
  State without_names(State state, ByteSet& differ);
  /// Returns a state of another terminal with the same regex that continues in the same way for *length characters
  /// (Terminals::twin), or the state itself.
  State twin(State state, std::uint32_t* length);
  /// Returns the state without complete terminals: states with equal continuations become one.
  State silent(State state);
  /// As in functional.hpp: kinds of bytes that keep one of the terminals going, for *length bytes.
  Signature loop_signature(State state, std::uint32_t* length) {
    if (!rows_[state].has_loop) find_loop(state);
    *length = rows_[state].loop_length;
    return rows_[state].loop;
  }

  /// As in functional.hpp: kinds of bytes that keep one of the terminals going after a character of several bytes.
  Signature multibyte_signature(State state) {
    if (!rows_[state].has_loop) find_loop(state);
    return rows_[state].multibyte;
  }

  /// The bytes that may follow, and perhaps others.
  const ByteSet& next_bytes(State state) {
    if (!rows_[state].narrow) narrow(state);
    return rows_[state].next;
  }

  /// A byte that the caller stores with a state; 0 at first, and when `overshot` becomes true.
  std::uint8_t& note(State state) { return notes_[state]; }

  std::size_t size() const { return rows_.size(); }
  /// Returns whether few more states fit, so that it is time for `keep_only`.
  bool crowded() const { return rows_.size() > kMax / 2 || guard_parts_ > kMaxGuardParts / 2; }
  std::size_t bytes() const {
    return table_.size() * 2 + (parts_.size() + guard_parts_) * sizeof(Part) + rows_.size() * sizeof(Row);
  }
  /// Drops all states except those in `kept`, which get new numbers.
  void keep_only(std::span<State> kept);
  const char* failure() const { return full_ ? "the terminals of the grammar have too many states" : nullptr; }

 private:
  static constexpr std::uint16_t kUnknown = 0xffff;
  /// Most grammars have fewer states.
  static constexpr std::size_t kUsual = 4096;
  /// Maximum number of parts of a guard after a byte, and of all guards.
  static constexpr std::size_t kMaxGuard = 32, kMaxGuardParts = 1u << 17;
  struct Part {
    Terminal terminal;
    Terminals::State state;
    auto operator<=>(const Part&) const = default;
  };
  struct Row {
    std::uint32_t first, count;
    std::uint32_t first_accepted, num_accepted;
    std::uint32_t guard;
    bool fresh, longest, has_loop = false, overshot = false;
    Signature loop = 0, multibyte = 0;
    std::uint32_t loop_length = kUnlimited;
    /// Whether `next` is known; the row of the table then has only these bytes to find out.
    bool narrow = false;
    ByteSet next;
  };

  State append_slowly(State state, std::uint8_t byte);
  State intern(bool fresh, std::span<const Part> parts, std::span<const Terminal> accepted, std::uint32_t guard = 0);
  /// Returns the number of the guard `next_guard_`, which it sorts.
  std::uint32_t intern_guard();
  std::span<const Part> parts(State state) const { return {parts_.data() + rows_[state].first, rows_[state].count}; }
  State with_guard(State state, std::uint32_t guard);
  std::optional<std::uint32_t> step_guard(std::uint32_t guard, std::uint8_t byte);
  void find_loop(State state);
  void narrow(State state);

  Terminals* terminals_;
  std::vector<Part> parts_;
  /// The first one has no parts.
  std::vector<std::vector<Part>> guards_{1};
  std::size_t guard_parts_ = 0;
  std::vector<Terminal> accepted_;
  std::vector<Row> rows_;
  std::vector<std::uint16_t> table_;
  std::vector<std::uint8_t> notes_;
  HashIndex ids_, guard_ids_;
  std::vector<Part> next_, next_guard_;
  std::vector<Terminal> next_accepted_;
  bool full_ = false;
};

}  // namespace aici::cfg
