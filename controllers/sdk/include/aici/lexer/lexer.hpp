// lexer.hpp - one deterministic automaton for all terminals of a grammar, made state by state as it is asked.
//
// It reads a lexeme byte by byte until no terminal can go on. The lexeme then ends before that byte, and is of the
// terminal that matches there: a keyword before a pattern, of two patterns the one that was added first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "aici/functional.hpp"
#include "aici/hash_index.hpp"
#include "aici/lexer/terminal_set.hpp"
#include "aici/regex/regex.hpp"

namespace aici::lexer {

class Lexer {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0, kInitial = 1;
  /// More states are not made.
  static constexpr State kMostStates = 1 << 14;

  explicit Lexer(std::size_t terminals) : sets_(terminals) {}

  /// Keywords are not empty, and all different: false if this one is known. Only before the first question.
  bool add_keyword(std::string_view text, Terminal terminal);
  void add_pattern(regex::Regex pattern, Terminal terminal);
  /// After the last of them. `ignored` is the terminal that may stand between any two, such as blanks (kNoTerminal:
  /// there is none).
  void finish(Terminal ignored);

  /// The state after `byte`; kDead if no terminal goes on. kDead stays dead.
  State append(State state, std::uint8_t byte) {
    const State next = table_[state << 8 | byte];
    return next != kUnknown ? next : append_slowly(state, byte);
  }
  /// The terminal of the lexeme if it ends here, or kNoTerminal.
  Terminal accepted(State state) const { return rows_[state].accepted; }
  /// The set of the terminals that the lexeme can still become: for each some text leads from here to where it is
  /// `accepted`.
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

  /// How a lexeme may end.
  struct Ending {
    Terminal terminal;
    std::vector<State> next;  ///< after one byte more, which is of the next lexeme
    bool operator==(const Ending&) const = default;
  };
  /// All ways in which the lexeme may end, each once.
  std::vector<Ending> endings(State state);

  /// Bytes such that any text made of them (of at most *length bytes) leads to states from which a terminal of the
  /// set `wanted` can be reached.
  Signature loop_signature(State state, std::uint32_t wanted, std::uint32_t* length);

  TerminalSets& sets() { return sets_; }
  std::size_t num_states() const { return rows_.size(); }
  /// Why the answers given so far are not to be used, or null.
  const char* failure() const;

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffff;
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
  /// A state is a node of the trie (0 = none), and the patterns that are alive with their states.
  struct Part {
    std::uint32_t pattern;
    regex::Regex::State state;
    bool operator==(const Part&) const = default;
  };
  struct Row {
    std::uint32_t node, first, count;
    Terminal accepted = kNoTerminal;
    std::uint32_t reachable = kUnknown, separable = 0;
  };

  State append_slowly(State state, std::uint8_t byte);
  State intern(std::uint32_t node, std::span<const Part> parts);
  std::uint32_t find_reachable(State state);
  void mark_keywords(std::uint32_t node, State state);
  bool can_be_separated(State state);
  std::vector<State> next_lexemes(State state);
  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
  /// Adds the keywords of a node and those that it is the beginning of, and to `separable` those that can be separated.
  void add_keywords(std::uint32_t node, std::vector<std::uint32_t>& all, std::vector<std::uint32_t>& separable) const;

  /// Adds the patterns that are alive in a state.
  void add_patterns(const Row& row, std::vector<std::uint32_t>& set) const;

  TerminalSets sets_;
  std::vector<Node> trie_{2};
  std::vector<Pattern> patterns_;
  std::vector<Part> parts_;
  std::vector<Row> rows_;
  std::vector<State> table_;
  HashIndex ids_;
  std::vector<std::uint8_t> ignored_bytes_;  ///< which begin a lexeme that is ignored
  bool full_ = false;
};

}  // namespace aici::lexer
