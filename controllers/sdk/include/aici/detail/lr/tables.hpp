// tables.hpp - the tables of an LR(1) parser.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aici/detail/lr/grammar.hpp"

namespace aici::lr {

/// The action in a state for a terminal. 0: error; n > 0: go to state n; n < 0: reduce by production -n. kAccept
/// is that by production 0.
using Action = std::int16_t;
inline constexpr Action kAccept = -0x7fff;

struct Tables {
  std::uint32_t num_states = 0, num_terminals = 0, num_nonterminals = 0;
  std::vector<Action> actions;         ///< by state and terminal
  std::vector<std::uint16_t> gotos;    ///< by state and nonterminal; 0 = none
  /// By production.
  std::vector<std::uint16_t> length, left;

  Action action(std::uint32_t state, Terminal terminal) const { return actions[state * num_terminals + terminal]; }
  std::uint32_t go(std::uint32_t state, std::uint32_t nonterminal) const {
    return gotos[state * num_nonterminals + nonterminal];
  }
};

/// A conflict of the grammar, and its resolution.
struct Conflict {
  bool between_reductions;
  std::string text;
};

struct Limits {
  /// Maximum number of states; C needs some 400. Building takes about 50 us per state.
  std::uint32_t states = 8192;
};

/// Builds the tables. Merges states as far as this adds no conflict to canonical LR(1) (Pager 1977). Conflicts that
/// precedences do not resolve are resolved as in yacc: shift, or reduce by the first production. Returns an error
/// message, or null.
const char* build_tables(const Grammar& grammar, Tables* tables, std::vector<Conflict>* conflicts,
                         const Limits& limits = {});

}  // namespace aici::lr
