#include "item_sets.hpp"

#include <algorithm>

namespace aici::lr {
namespace {

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

}  // namespace

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

}  // namespace aici::lr
