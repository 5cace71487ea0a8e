// Builds the tables of an LR(1) parser from its grammar.
#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "aici/detail/containers.hpp"
#include "aici/detail/lr/parser.hpp"

namespace aici::lr {

std::string Grammar::item(std::uint32_t production, std::uint32_t dot) const {
  const Production& p = productions[production];
  std::string text = name(p.left) + " :";
  for (std::uint32_t i = 0; i <= p.right.size(); i++) {
    if (i == dot) text += " .";
    if (i < p.right.size()) text += " " + name(p.right[i]);
  }
  return text;
}

namespace {

/// A set of terminals as words of 32 bits.
using Lookahead = std::vector<std::uint32_t>;

bool contains(const Lookahead& set, Terminal terminal) { return set[terminal / 32] >> terminal % 32 & 1; }

/// Adds `from` to `to`; returns whether `to` has changed.
bool unite(Lookahead& to, const Lookahead& from) {
  bool changed = false;
  for (std::size_t i = 0; i < to.size(); i++) {
    changed |= (from[i] & ~to[i]) != 0;
    to[i] |= from[i];
  }
  return changed;
}

/// Which terminals a symbol of a grammar can begin with, and whether it can be empty.
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

/// A production, how much of it has been read, and the terminals that may follow it.
struct Item {
  std::uint32_t production, dot;
  Lookahead lookahead;
};

/// A state: its kernel, sorted by production and dot, and the next states by symbol.
struct ItemSet {
  std::vector<Item> kernel;
  std::map<Symbol, std::uint32_t> successors;
};

/// The states of the parser as sets of items, with states merged where that is safe.
class ItemSets {
 public:
  ItemSets(const Grammar& grammar, std::uint32_t most);

  /// Builds all states; returns false if there are too many.
  bool build();
  const std::vector<ItemSet>& states() const { return states_; }
  /// Returns the kernel's items and all items with which these can begin, each production and dot once.
  std::vector<Item> closure(const ItemSet& state) const;

 private:
  void expand(std::uint32_t state);
  std::uint32_t place(std::vector<Item> kernel);
  static bool compatible(const std::vector<Item>& a, const std::vector<Item>& b);
  static std::uint32_t core_hash(const std::vector<Item>& kernel);

  const Grammar& grammar_;
  FirstSets first_;
  std::uint32_t most_;
  std::vector<std::vector<std::uint32_t>> productions_of_;  ///< by nonterminal
  std::vector<ItemSet> states_;
  /// Lists of states with the same core.
  HashIndex cores_;
  std::vector<std::vector<std::uint32_t>> same_core_;
  std::vector<std::uint32_t> queue_;
  std::vector<bool> queued_;
};

bool meet(const Lookahead& a, const Lookahead& b) {
  for (std::size_t i = 0; i < a.size(); i++)
    if (a[i] & b[i]) return true;
  return false;
}

bool same_core(const std::vector<Item>& a, const std::vector<Item>& b) {
  return std::ranges::equal(a, b, [](const Item& x, const Item& y) {
    return x.production == y.production && x.dot == y.dot;
  });
}

ItemSets::ItemSets(const Grammar& grammar, std::uint32_t most)
    : grammar_(grammar), first_(grammar), most_(most), productions_of_(grammar.nonterminals.size()) {
  for (std::uint32_t i = 0; i < grammar.productions.size(); i++)
    productions_of_[nonterminal_index(grammar.productions[i].left)].push_back(i);
}

bool ItemSets::build() {
  Lookahead end(first_.words());
  lexer::add(end, kEnd);
  place({{0, 0, end}});
  while (!queue_.empty()) {
    const std::uint32_t state = queue_.back();
    queue_.pop_back();
    queued_[state] = false;
    expand(state);
    if (states_.size() > most_) return false;
  }
  return true;
}

std::vector<Item> ItemSets::closure(const ItemSet& state) const {
  std::vector<Item> items = state.kernel;
  std::vector<std::uint32_t> first_item(grammar_.nonterminals.size(), UINT32_MAX);
  std::vector<std::uint32_t> queue(items.size());
  std::vector<bool> queued(items.size(), true);
  for (std::uint32_t i = 0; i < items.size(); i++) queue[i] = i;
  while (!queue.empty()) {
    const std::uint32_t at = queue.back();
    queue.pop_back();
    queued[at] = false;
    const std::vector<Symbol>& right = grammar_.productions[items[at].production].right;
    if (items[at].dot == right.size() || !is_nonterminal(right[items[at].dot])) continue;
    Lookahead follow(first_.words());
    bool ignored = false;
    if (first_.add_sequence(std::span(right).subspan(items[at].dot + 1), follow, &ignored))
      unite(follow, items[at].lookahead);
    const std::uint32_t symbol = nonterminal_index(right[items[at].dot]);
    const bool fresh = first_item[symbol] == UINT32_MAX;
    if (fresh) first_item[symbol] = static_cast<std::uint32_t>(items.size());
    for (std::uint32_t i = 0; i < productions_of_[symbol].size(); i++) {
      const std::uint32_t item = first_item[symbol] + i;
      if (fresh) {
        items.push_back({productions_of_[symbol][i], 0, follow});
        queued.push_back(false);
      } else if (!unite(items[item].lookahead, follow)) {
        continue;
      }
      if (!queued[item]) queued[item] = true, queue.push_back(item);
    }
  }
  return items;
}

void ItemSets::expand(std::uint32_t state) {
  std::map<Symbol, std::vector<Item>> kernels;
  for (Item& item : closure(states_[state])) {
    const std::vector<Symbol>& right = grammar_.productions[item.production].right;
    if (item.dot < right.size()) {
      const Symbol symbol = right[item.dot];
      kernels[symbol].push_back({item.production, item.dot + 1, std::move(item.lookahead)});
    }
  }
  for (auto& [symbol, kernel] : kernels) {
    std::ranges::sort(kernel, [](const Item& a, const Item& b) {
      return a.production != b.production ? a.production < b.production : a.dot < b.dot;
    });
    const std::uint32_t next = place(std::move(kernel));
    states_[state].successors[symbol] = next;
  }
}

std::uint32_t ItemSets::core_hash(const std::vector<Item>& kernel) {
  Hasher hash;
  for (const Item& item : kernel) hash.add(item.production), hash.add(item.dot);
  return hash.bits();
}

/// Returns whether the lookaheads can be united without a new conflict: each pair of items that would meet in the union
/// must already meet in one of the two sets.
bool ItemSets::compatible(const std::vector<Item>& a, const std::vector<Item>& b) {
  for (std::size_t i = 0; i < a.size(); i++)
    for (std::size_t j = i + 1; j < a.size(); j++)
      if ((meet(a[i].lookahead, b[j].lookahead) || meet(a[j].lookahead, b[i].lookahead)) &&
          !meet(a[i].lookahead, a[j].lookahead) && !meet(b[i].lookahead, b[j].lookahead))
        return false;
  return true;
}

std::uint32_t ItemSets::place(std::vector<Item> kernel) {
  const std::uint32_t hash = core_hash(kernel);
  const auto same = [&](std::uint32_t i) { return same_core(states_[same_core_[i][0]].kernel, kernel); };
  std::uint32_t core = cores_.find(hash, same);
  if (core == HashIndex::kNone) {
    core = static_cast<std::uint32_t>(same_core_.size());
    cores_.insert(hash, core);
    same_core_.emplace_back();
  }
  std::uint32_t found = UINT32_MAX;
  bool changed = false;
  for (std::uint32_t candidate : same_core_[core])
    if (compatible(states_[candidate].kernel, kernel)) {
      found = candidate;
      for (std::size_t i = 0; i < kernel.size(); i++)
        changed |= unite(states_[found].kernel[i].lookahead, kernel[i].lookahead);
      break;
    }
  if (found == UINT32_MAX) {
    found = static_cast<std::uint32_t>(states_.size());
    same_core_[core].push_back(found);
    states_.push_back({std::move(kernel), {}});
    queued_.push_back(false);
    changed = true;
  }
  if (changed && !queued_[found]) queued_[found] = true, queue_.push_back(found);
  return found;
}

/// Fills the tables of a parser from its states.
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
