#include "checks.hpp"

#include <algorithm>

namespace aici::yacc {

namespace {

using lr::Grammar;
using lr::is_nonterminal;
using lr::nonterminal_index;
using lr::Production;
using lr::Symbol;

/// Returns the nonterminals that derive a text in which `good` holds for every terminal.
template <class Good>
std::vector<bool> derivable(const Grammar& grammar, Good good) {
  std::vector<bool> found(grammar.nonterminals.size());
  for (bool changed = true; changed;) {
    changed = false;
    for (const Production& p : grammar.productions)
      if (!found[nonterminal_index(p.left)] && std::ranges::all_of(p.right, [&](Symbol symbol) {
            return is_nonterminal(symbol) ? found[nonterminal_index(symbol)] : good(symbol);
          }))
        changed = found[nonterminal_index(p.left)] = true;
  }
  return found;
}

/// The symbols that can be reached from the start.
struct Reachable {
  std::vector<bool> nonterminals, terminals;
};

Reachable reachable(const Grammar& grammar) {
  Reachable found{std::vector<bool>(grammar.nonterminals.size()), std::vector<bool>(grammar.terminals.size())};
  found.nonterminals[0] = true;
  for (bool changed = true; changed;) {
    changed = false;
    for (const Production& p : grammar.productions) {
      if (!found.nonterminals[nonterminal_index(p.left)]) continue;
      for (Symbol symbol : p.right) {
        auto known = is_nonterminal(symbol) ? found.nonterminals.begin() + nonterminal_index(symbol)
                                            : found.terminals.begin() + symbol;
        if (!*known) changed = *known = true;
      }
    }
  }
  return found;
}

/// Returns, for each nonterminal, the nonterminals by which it can be replaced, with nothing else.
std::vector<std::vector<bool>> replacements(const Grammar& grammar) {
  const std::vector<bool> empty = derivable(grammar, [](Symbol) { return false; });
  const auto vanishes = [&](Symbol s) { return is_nonterminal(s) && empty[nonterminal_index(s)]; };
  const std::size_t count = grammar.nonterminals.size();
  std::vector<std::vector<bool>> by(count, std::vector<bool>(count));
  for (const Production& p : grammar.productions)
    for (std::size_t i = 0; i < p.right.size(); i++) {
      bool alone = is_nonterminal(p.right[i]);
      for (std::size_t j = 0; alone && j < p.right.size(); j++) alone = i == j || vanishes(p.right[j]);
      if (alone) by[nonterminal_index(p.left)][nonterminal_index(p.right[i])] = true;
    }
  for (std::size_t middle = 0; middle < count; middle++)
    for (std::size_t from = 0; from < count; from++)
      if (by[from][middle])
        for (std::size_t to = 0; to < count; to++)
          if (by[middle][to]) by[from][to] = true;
  return by;
}

}  // namespace

void check_grammar(const Grammar& grammar, lexer::Terminal ignored, const Complaint& fail, const Complaint& warn) {
  const std::vector<bool> productive = derivable(grammar, [](Symbol) { return true; });
  const std::vector<std::vector<bool>> replaced = replacements(grammar);
  for (std::size_t i = 1; i < grammar.nonterminals.size(); i++) {
    const std::string& name = grammar.nonterminals[i];
    if (!productive[i]) fail(name, name + " matches no text: each of its alternatives contains itself");
    if (replaced[i][i]) fail(name, name + " derives itself, so a text has infinitely many derivations");
  }
  const Reachable used = reachable(grammar);
  for (std::size_t i = 1; i < grammar.nonterminals.size(); i++)
    if (!used.nonterminals[i]) warn(grammar.nonterminals[i], "the rule " + grammar.nonterminals[i] + " is not used");
  for (std::size_t i = 1; i < grammar.terminals.size(); i++)
    if (!used.terminals[i] && i != ignored)
      warn(grammar.terminals[i], "the terminal " + grammar.terminals[i] + " is not in any rule that is used");
}

}  // namespace aici::yacc
