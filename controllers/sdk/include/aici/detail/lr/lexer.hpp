// lexer.hpp - one lazily built deterministic automaton for all terminals of a grammar.
//
// It reads a lexeme byte by byte until no terminal can continue. The lexeme ends where a terminal matched last. A keyword
// wins over a pattern, and the pattern that was added first wins over others.
//
// Where a lexeme is complete but might go on, what follows it is read as well. The states of that have a guard: the
// states of the longer lexemes. They are dead as soon as one of these is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/detail/hash_index.hpp"
#include "aici/functional.hpp"
#include "aici/regex/regex.hpp"

namespace aici::lexer {

/// The number of a terminal, which a lexer produces and a parser consumes.
using Terminal = std::uint16_t;
inline constexpr Terminal kNoTerminal = 0xffff;

/// Sets of terminals, each stored once and known by number: bit sets of the same length. Equal sets have equal numbers;
/// 0 is the empty set.
class TerminalSets {
 public:
  explicit TerminalSets(std::size_t terminals) : words_((terminals + 31) / 32) { intern(empty()); }

  std::vector<std::uint32_t> empty() const { return std::vector<std::uint32_t>(words_); }
  std::uint32_t intern(std::span<const std::uint32_t> set);
  std::span<const std::uint32_t> operator[](std::uint32_t number) const {
    return {arena_.data() + number * words_, words_};
  }
  bool has(std::uint32_t number, Terminal terminal) const {
    return arena_[number * words_ + terminal / 32] >> (terminal % 32) & 1;
  }
  bool meet(std::uint32_t a, std::uint32_t b) const;
  std::size_t size() const { return arena_.size() / words_; }

 private:
  std::size_t words_;
  std::vector<std::uint32_t> arena_;
  HashIndex ids_;
};

inline void add(std::vector<std::uint32_t>& set, Terminal terminal) { set[terminal / 32] |= 1u << terminal % 32; }

class Lexer {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0, kInitial = 1;
  /// Maximum number of states.
  static constexpr State kMaxStates = 1 << 14;
  /// A number for the caller's own use: of a state that no byte continues.
  static constexpr State kUnused = 2;

  explicit Lexer(std::size_t terminals) : sets_(terminals) {}

  /// Adds a nonempty keyword; returns false if it exists already. Call it before any query.
  bool add_keyword(std::string_view text, Terminal terminal);
  void add_pattern(regex::Regex pattern, Terminal terminal);
  /// Call it after the last terminal was added. `ignored` is the terminal that may stand between lexemes, such as
  /// blanks, or kNoTerminal.
  void finish(Terminal ignored);

  /// In a result of `step`: the byte has made a complete lexeme an incomplete one.
  static constexpr State kOvershot = 1u << 31;

  /// Returns the state after `byte`; kDead if no terminal continues. kDead stays dead.
  State append(State state, std::uint8_t byte) { return step(state, byte) & ~kOvershot; }
  /// The same, perhaps with kOvershot.
  State step(State state, std::uint8_t byte) {
    const State next = table_[state << 8 | byte];
    return next != kUnknown ? next : step_slowly(state, byte);
  }
  /// The initial state after a lexeme, guarded by that and by its guard. Returns kDead if there are too many.
  State follow(State before);
  bool guarded(State state) const { return rows_[state].guard != 0; }
  State without_guard(State state) { return with_guard(state, 0); }
  /// Returns the terminal of the lexeme if it ends here, or kNoTerminal.
  Terminal accepted(State state) const { return rows_[state].accepted; }
  /// Returns the set of terminals that the lexeme can still become: for each of them, some text leads to a state
  /// where it is `accepted`.
  std::uint32_t reachable(State state) {
    const std::uint32_t known = rows_[state].reachable;
    return known != kUnknown ? known : find_reachable(state);
  }
  /// Those of them that what is ignored can follow: some text leads to where they are `accepted` and a byte that
  /// ends the lexeme begins one that is ignored.
  std::uint32_t separable(State state) {
    reachable(state);
    return rows_[state].separable;
  }

  /// A way in which a lexeme may end.
  struct Ending {
    Terminal terminal;
    std::vector<State> next;  ///< states after the first byte of the next lexeme
    bool operator==(const Ending&) const = default;
  };
  /// Returns all ways in which the lexeme may end, each once; nothing if it is too far to search.
  std::optional<std::vector<Ending>> endings(State state);

  /// Bytes such that any text made of them (of at most *length bytes) leads to states from which a terminal of the
  /// set `wanted` can be reached.
  Signature loop_signature(State state, std::uint32_t wanted, std::uint32_t* length);

  /// Returns whether all texts of all terminals are well-formed UTF-8.
  bool well_formed() const { return well_formed_; }

  TerminalSets& sets() { return sets_; }
  std::size_t num_states() const { return rows_.size(); }
  std::size_t bytes() const {
    return table_.size() * sizeof(State) + parts_.size() * sizeof(Part) + rows_.size() * sizeof(Row);
  }
  /// Returns why the answers so far are invalid, or null.
  const char* failure() const;

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffff;
  /// Maximum number of states in a guard, and of guards.
  static constexpr std::size_t kMaxGuard = 16, kMaxGuards = 4096;
  /// A node of the trie of keywords.
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;
    Terminal terminal = kNoTerminal;
    bool separable = false;
  };
  struct Pattern {
    regex::Regex regex;
    Terminal terminal;
  };
  /// A state is a node of the trie (0: none), and the live patterns with their states.
  struct Part {
    std::uint32_t pattern;
    regex::Regex::State state;
    bool operator==(const Part&) const = default;
  };
  struct Row {
    std::uint32_t node, first, count;
    std::uint32_t guard = 0;
    Terminal accepted = kNoTerminal;
    std::uint32_t reachable = kUnknown, separable = 0;
  };

  State step_slowly(State state, std::uint8_t byte);
  State intern(std::uint32_t node, std::span<const Part> parts, std::uint32_t guard = 0);
  std::uint32_t intern_guard(std::vector<State> guard);
  State with_guard(State state, std::uint32_t guard);
  std::uint32_t find_reachable(State state);
  void mark_keywords(std::uint32_t node, State state);
  bool can_be_separated(State state);
  std::vector<State> next_lexemes(State state);
  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
  /// Adds the keywords of a node and those that it is the beginning of, and to `separable` those that can be separated.
  void add_keywords(std::uint32_t node, std::vector<std::uint32_t>& all, std::vector<std::uint32_t>& separable) const;

  /// Adds the live patterns of a state.
  void add_patterns(const Row& row, std::vector<std::uint32_t>& set) const;

  TerminalSets sets_;
  std::vector<Node> trie_{2};
  std::vector<Pattern> patterns_;
  std::vector<Part> parts_;
  /// The first one has no states.
  std::vector<std::vector<State>> guards_{1};
  std::vector<Row> rows_;
  std::vector<State> table_;
  HashIndex ids_;
  std::vector<std::uint8_t> ignored_bytes_;  ///< the first bytes of ignored lexemes
  bool full_ = false, well_formed_ = true;
};

}  // namespace aici::lexer
