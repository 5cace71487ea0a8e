// scanner.hpp - reads several terminals at once, byte by byte: one deterministic automaton for each set of them.
//
// A state consists of the terminals that are still possible, each with its own state. States and their rows of next
// states are built lazily and shared by all columns that allow the same terminals.
//
// Where a lexeme is complete but might go on, what follows it is read as well. Such a state also has a guard: the longer
// lexemes, each with its own state. It is dead as soon as one of them is complete.
//
// `Rows` and `Arrays` are what the parser keeps of its own states: their next states, and the items of arrays.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/detail/cfg/terminals.hpp"

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

/// The next states of states, by byte. A row has entries only for bytes that can follow, mostly few.
class Rows {
 public:
  /// The next state is not known yet. 0 is dead.
  static constexpr std::uint32_t kUnknown = 0xffffffff;

  std::uint32_t find(std::uint32_t row, std::uint8_t byte) const {
    const Row& found = rows_[row];
    const std::uint32_t word = found.bytes.word(byte >> 5), bit = 1u << (byte & 31);
    return (word & bit) != 0 ? next_[found.place(byte, word & (bit - 1))] : found.others;
  }
  /// Adds a row of unknown states. It has no entries before `narrow`.
  void add() { rows_.emplace_back(); }
  /// Returns whether the row has entries.
  bool narrowed(std::uint32_t row) const { return rows_[row].others == 0; }
  /// Makes entries for the bytes that can follow.
  void narrow(std::uint32_t row, const ByteSet& bytes) {
    Row& made = rows_[row];
    made.bytes = bytes, made.others = 0, made.first = static_cast<std::uint32_t>(next_.size());
    unsigned count = 0;
    for (unsigned i = 0; i < made.before.size(); i++) {
      made.before[i] = static_cast<std::uint8_t>(count);
      count += static_cast<unsigned>(std::popcount(bytes.word(i)));
    }
    next_.insert(next_.end(), count, kUnknown);
  }
  /// Stores the next state in an entry.
  void set(std::uint32_t row, std::uint8_t byte, std::uint32_t next) {
    const Row& found = rows_[row];
    next_[found.place(byte, found.bytes.word(byte >> 5) & ((1u << (byte & 31)) - 1))] = next;
  }

  /// Reserves memory for some thousand rows: if the arrays moved, their pages would be written again.
  void reserve() { rows_.reserve(1 << 14), next_.reserve(1 << 18); }
  void clear() { rows_.clear(), next_.clear(); }
  std::size_t bytes() const { return rows_.size() * sizeof(Row) + next_.size() * sizeof(std::uint32_t); }

 private:
  struct Row {
    ByteSet bytes;
    /// The next state after all bytes but these.
    std::uint32_t others = kUnknown;
    /// The place of its entries in `next_`, and the number of those before each 32 bytes.
    std::uint32_t first = 0;
    std::array<std::uint8_t, 8> before{};

    /// `below` has the bits of the smaller ones of 32 bytes.
    std::size_t place(std::uint8_t byte, std::uint32_t below) const {
      return first + before[byte >> 5] + static_cast<unsigned>(std::popcount(below));
    }
  };

  std::vector<Row> rows_;
  std::vector<std::uint32_t> next_;
};

/// Returns a hash of a JSON value. Numbers that are rounded to the same double count as equal, and so do values that
/// differ only below 64 levels.
std::uint64_t hash_json(std::string_view text);

/// JSON arrays with different items, while they are read: the text of the item so far, and what is known of the items
/// before it.
///
/// A position is a text after the bracket that opens the array, together with the parser's state. Positions make up a
/// tree by their bytes. An item counts as its hash, which is equal for equal values, whatever their spelling: so two
/// different items may be taken for equal ones (with a probability of 2^-64), but never the other way round. The names
/// of an object are treated in the same way: a colon outside of inner values ends an item.
class Arrays {
 public:
  /// The number of a position.
  using Id = std::uint32_t;
  static constexpr Id kNone = 0xffffffff;
  enum class Life : std::uint8_t { kUnknown, kAlive, kDead };

  struct Position {
    Id before;
    std::uint32_t state;     ///< of the parser
    Id items = kNone;        ///< the last of the items before this one
    std::uint32_t size = 0;  ///< number of bytes since the item's begin; 0xffffffff in the value of a property
    std::uint32_t depth = 0;
    std::uint8_t byte = 0;
    bool quoted = false, escaped = false;
    bool left = false;  ///< whether the array has ended
    Life life = Life::kUnknown;
  };

  /// Returns the position at the beginning of an array.
  Id begin(std::uint32_t state);
  /// Returns the position after a byte if it is known, or kNone.
  Id known(Id from, std::uint8_t byte) const;
  /// Adds the position after a byte. It is dead if an item ends there that the array already has.
  Id add(Id from, std::uint8_t byte, std::uint32_t state);
  /// Returns whether an item ends with the last byte before this position.
  bool item_ended(Id id) const { return at(id).items != kNone && at(id).size == 0; }

  Position& at(Id id) { return positions_[id]; }
  const Position& at(Id id) const { return positions_[id]; }
  /// Number of items before this one.
  std::uint32_t count(Id id) const { return at(id).items == kNone ? 0 : items_[at(id).items].number; }

  std::size_t size() const { return positions_.size(); }
  std::size_t bytes() const {
    return positions_.size() * sizeof(Position) + items_.size() * sizeof(Item) + texts_.size() + ids_.bytes();
  }
  /// Returns the text of the item so far.
  std::string item(Id id) const;
  /// Calls `visit` with the text of each item before this one.
  template <class Visit>
  void each_item(Id id, Visit visit) const {
    for (Id item = at(id).items; item != kNone; item = items_[item].before)
      visit(std::string_view(texts_).substr(items_[item].first, items_[item].size));
  }
  /// Copies a position of another object, with another state.
  Id copy(const Arrays& from, Id id, std::uint32_t state);

 private:
  struct Item {
    Id before;
    std::uint32_t number;
    std::uint64_t hash;
    /// The place of its text in `texts_`.
    std::uint32_t first, size;
  };

  Id insert(const Position& position, bool findable);
  Id add_item(Id before, std::uint64_t hash, std::string_view text);

  std::vector<Position> positions_;
  std::vector<Item> items_;
  std::string texts_;
  HashIndex ids_;
};

}  // namespace aici::cfg
