#include "aici/detail/lr/tables.hpp"

#include <algorithm>

#include "item_sets.hpp"

namespace aici::lr {
namespace {

class Builder {
 public:
  Builder(const Grammar& grammar, Tables* tables, std::vector<Conflict>* conflicts)
      : grammar_(grammar), tables_(*tables), conflicts_(*conflicts) {}

  const char* build(const Limits& limits) {
    if (grammar_.productions.size() >= 0x7fff) return "the grammar has too many rules";
    ItemSets sets(grammar_, std::min<std::uint32_t>(limits.states, 0x7ffe));
    if (!sets.build()) return "the parser of the grammar has too many states";
    number(sets.states());
    tables_.num_terminals = static_cast<std::uint32_t>(grammar_.terminals.size());
    tables_.num_nonterminals = static_cast<std::uint32_t>(grammar_.nonterminals.size());
    tables_.actions.assign(tables_.num_states * tables_.num_terminals, 0);
    tables_.gotos.assign(tables_.num_states * tables_.num_nonterminals, 0);
    for (const Production& p : grammar_.productions) {
      tables_.length.push_back(static_cast<std::uint16_t>(p.right.size()));
      tables_.left.push_back(static_cast<std::uint16_t>(nonterminal_index(p.left)));
    }
    for (std::uint32_t i = 0; i < sets.states().size(); i++)
      if (number_[i]) fill(number_[i], sets, sets.states()[i]);
    return nullptr;
  }

 private:
  /// Numbers the reachable states, from 1 on. Merging makes some states unreachable.
  void number(const std::vector<ItemSet>& states) {
    number_.assign(states.size(), 0);
    std::vector<std::uint32_t> queue{0};
    number_[0] = tables_.num_states = 1;
    for (std::size_t at = 0; at < queue.size(); at++)
      for (const auto& [symbol, next] : states[queue[at]].successors)
        if (!number_[next]) number_[next] = ++tables_.num_states, queue.push_back(next);
    tables_.num_states++;  // 0 means no state
  }

  void fill(std::uint32_t state, const ItemSets& sets, const ItemSet& set) {
    for (const auto& [symbol, next] : set.successors) {
      if (is_nonterminal(symbol))
        tables_.gotos[state * tables_.num_nonterminals + nonterminal_index(symbol)] =
            static_cast<std::uint16_t>(number_[next]);
      else
        tables_.actions[state * tables_.num_terminals + symbol] = static_cast<Action>(number_[next]);
    }
    const std::vector<Item> items = sets.closure(set);
    std::vector<const Item*> complete;
    for (const Item& item : items)
      if (item.dot == grammar_.productions[item.production].right.size()) complete.push_back(&item);
    std::ranges::sort(complete, {}, [](const Item* item) { return item->production; });
    for (const Item* item : complete)
      for (Terminal t = 0; t < tables_.num_terminals; t++)
        if (contains(item->lookahead, t)) reduce(state, t, *item, items);
  }

  void reduce(std::uint32_t state, Terminal t, const Item& item, const std::vector<Item>& items) {
    Action& action = tables_.actions[state * tables_.num_terminals + t];
    const Action reduction = item.production ? static_cast<Action>(-static_cast<int>(item.production)) : kAccept;
    if (action == 0) {
      if (!is_error(state, t)) action = reduction;
      return;
    }
    if (action < 0) {
      const auto other = action == kAccept ? 0u : static_cast<std::uint32_t>(-action);
      report(true, t, item, grammar_.item(other, static_cast<std::uint32_t>(grammar_.productions[other].right.size())),
             "the first one is used");
      return;
    }
    const Precedence rule = grammar_.productions[item.production].precedence, terminal = grammar_.precedences[t];
    if (rule.level == 0 || terminal.level == 0) {
      report(false, t, item, shifting(t, items), "the parser shifts");
    } else if (rule.level > terminal.level) {
      action = reduction;
    } else if (rule.level == terminal.level) {
      switch (terminal.associativity) {
        case Associativity::kLeft: action = reduction; break;
        case Associativity::kRight: break;
        case Associativity::kNonassoc:
          action = 0;
          errors_.push_back(state * tables_.num_terminals + t);
          break;
        default: report(false, t, item, shifting(t, items), "the parser shifts");
      }
    }
  }

  /// Returns whether a %nonassoc forbids the terminal here.
  bool is_error(std::uint32_t state, Terminal t) const {
    return std::ranges::find(errors_, state * tables_.num_terminals + t) != errors_.end();
  }

  std::string shifting(Terminal t, const std::vector<Item>& items) const {
    for (const Item& item : items) {
      const auto& right = grammar_.productions[item.production].right;
      if (item.dot < right.size() && right[item.dot] == t) return grammar_.item(item.production, item.dot);
    }
    return {};
  }

  void report(bool reductions, Terminal t, const Item& item, const std::string& other, const char* taken) {
    std::string text = "before " + grammar_.terminals[t] + " both\n    " + other + "\n    " +
                       grammar_.item(item.production, item.dot) + "\n  are possible: " + taken;
    for (const Conflict& known : conflicts_)
      if (known.text == text) return;
    conflicts_.push_back({reductions, std::move(text)});
  }

  const Grammar& grammar_;
  Tables& tables_;
  std::vector<Conflict>& conflicts_;
  std::vector<std::uint32_t> number_;
  std::vector<std::uint32_t> errors_;
};

}  // namespace

const char* build_tables(const Grammar& grammar, Tables* tables, std::vector<Conflict>* conflicts,
                         const Limits& limits) {
  return Builder(grammar, tables, conflicts).build(limits);
}

}  // namespace aici::lr
