// first_sets.hpp - which terminals a symbol of a grammar can begin with, and whether it can be empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aici/detail/lr/grammar.hpp"

namespace aici::lr {

/// A set of terminals as words of 32 bits.
using Lookahead = std::vector<std::uint32_t>;

inline bool contains(const Lookahead& set, Terminal terminal) { return set[terminal / 32] >> terminal % 32 & 1; }

/// Adds `from` to `to`; returns whether `to` has changed.
inline bool unite(Lookahead& to, const Lookahead& from) {
  bool changed = false;
  for (std::size_t i = 0; i < to.size(); i++) {
    changed |= (from[i] & ~to[i]) != 0;
    to[i] |= from[i];
  }
  return changed;
}

class FirstSets {
 public:
  explicit FirstSets(const Grammar& grammar) : words_((grammar.terminals.size() + 31) / 32) {
    first_.assign(grammar.nonterminals.size(), Lookahead(words_));
    empty_.assign(grammar.nonterminals.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (const Production& p : grammar.productions) {
        const std::uint32_t left = nonterminal_index(p.left);
        if (add_sequence(p.right, first_[left], &changed) && !empty_[left]) changed = empty_[left] = true;
      }
    }
  }

  std::size_t words() const { return words_; }
  /// Adds the terminals with which the symbols can begin; returns whether all symbols can be empty.
  bool add_sequence(std::span<const Symbol> symbols, Lookahead& set, bool* changed) const {
    for (Symbol symbol : symbols) {
      if (!is_nonterminal(symbol)) {
        if (!contains(set, symbol)) *changed = true;
        lexer::add(set, symbol);
        return false;
      }
      if (unite(set, first_[nonterminal_index(symbol)])) *changed = true;
      if (!empty_[nonterminal_index(symbol)]) return false;
    }
    return true;
  }

 private:
  std::size_t words_;
  std::vector<Lookahead> first_;
  std::vector<bool> empty_;
};

}  // namespace aici::lr
