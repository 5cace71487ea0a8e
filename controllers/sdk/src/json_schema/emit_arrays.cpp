// Arrays: items in order, their number, and items that differ.
#include <algorithm>

#include "emitter.hpp"

namespace aici::json_schema {
namespace {

/// Optional items are nested groups; after this many items, a new rule begins.
constexpr std::uint32_t kNested = 50;
/// Maximum number of objects inside each other in which a property with many values is searched.
constexpr std::uint32_t kMaxLevels = 3;
/// Maximum number of states, and of steps from integer to integer, in which different values are counted.
constexpr std::size_t kMaxCounted = 4000;
/// Fewer than the characters of Unicode.
constexpr std::uint64_t kCharacters = 1'000'000;

/// Returns whether a range certainly has so many numbers of these types.
bool has_many_numbers(const Range& range, Types types, std::uint32_t least) {
  if (!range.low || !range.high) return true;
  if (types & kFraction && compare(*range.low, *range.high) < 0) return true;
  Decimal number = range.low->ceiling();
  if (!range.contains(number)) number = number.plus(1);
  for (std::uint32_t count = 0; count < kMaxCounted && range.contains(number); number = number.plus(1))
    if (++count >= least) return true;
  return false;
}

/// Returns whether an automaton certainly accepts so many texts. From each of its states, a text can be completed.
bool has_many_texts(regex::Regex& texts, std::uint64_t least) {
  struct Visit {
    regex::Regex::State state;
    std::uint32_t byte = 0;
    std::uint64_t count = 0;
  };
  // the number of texts from a state on; nothing while it is being counted
  std::map<regex::Regex::State, std::optional<std::uint64_t>> counts{{texts.initial(), std::nullopt}};
  std::vector<Visit> path{{texts.initial()}};
  for (;;) {
    Visit& last = path.back();
    if (last.byte == 0 && texts.accepting(last.state)) last.count++;
    if (last.count >= least) return true;
    if (last.byte == 256) {
      const std::uint64_t count = last.count;
      counts[last.state] = count;
      path.pop_back();
      if (path.empty()) return false;
      path.back().count += count;
      continue;
    }
    const regex::Regex::State next = texts.append(last.state, static_cast<std::uint8_t>(last.byte++));
    if (texts.dead(next)) continue;
    const auto [found, added] = counts.try_emplace(next);
    if (!added && !found->second) return true;  // a loop
    if (!added) last.count += *found->second;
    if (added && counts.size() > kMaxCounted) return false;
    if (added) path.push_back({next});
  }
}

}  // namespace

std::uint32_t Emitter::last_named_item(const Branch& branch) const {
  std::uint32_t last = 0;
  for (const Branch::Items& items : branch.items)
    last = std::max(last, items.end == Branch::kNoLimit ? items.first : items.end);
  return last;
}

cfg::Expr Emitter::array(const Branch& branch) {
  if (branch.unique != kNone && branch.max_items > 1) {
    if (const std::optional<Expr> few = array_of_few_values(branch)) return *few;
    if (!can_always_end(branch)) {
      problems_.unsupported(branch.unique,
                            "different items can be enforced only for at most one required item, or if there are "
                            "certainly enough different values: lower minItems, or omit uniqueItems");
      return grammar_.never();
    }
  }
  return branch.contains.empty() ? plain_array(branch) : counted_array(branch);
}

/// Returns those texts of an array or object whose items or names differ. `text` is what follows the opening bracket.
cfg::Expr Emitter::different_items(std::string_view bracket, Expr text) {
  const cfg::Rule rule = grammar_.declare("different items");
  grammar_.define(rule, text);
  grammar_.make_items_differ(rule);
  const Expr open = grammar_.literal(bracket), call = grammar_.call(rule);
  return grammar_.choice({grammar_.sequence({open, call}), grammar_.sequence({open, marks_.blanks(), call})});
}

/// Returns whether an array whose items differ can be completed after any item.
bool Emitter::can_always_end(const Branch& branch) {
  // an item that `contains` requires has not been written before, or it would have been counted
  if (!branch.contains.empty())
    return branch.contains.size() == 1 && branch.contains[0].min <= 1 && branch.min_items <= 1;
  return branch.min_items <= 1 ||
         (last_named_item(branch) == 0 && has_many(branch.item_goal(0), branch.min_items, kMaxLevels));
}

/// Returns whether at least so many different values certainly meet the goal.
bool Emitter::has_many(const Goal& goal, std::uint32_t least, std::uint32_t levels) {
  const Shape& shape = expander_.use(expander_.simplify(goal));
  ValueSet different(document_);
  std::uint32_t count = 0;
  for (const Value value : shape.literals) count += different.add(value);
  if (count >= least) return true;
  return std::ranges::any_of(shape.branches, [&](const Branch& branch) {
    const bool plain = branch.multiples.empty() && branch.not_multiples.empty() && branch.not_numbers.empty();
    if (branch.types & kNumber && plain && has_many_numbers(branch.range, branch.types, least)) return true;
    if (branch.types & kString && has_many_strings(branch, least)) return true;
    if (levels == 0) return false;
    const bool any_number = branch.max_items == Branch::kNoLimit && branch.unique == kNone && branch.contains.empty();
    if (branch.types & kArray && any_number && last_named_item(branch) == 0 &&
        has_many(branch.item_goal(0), 1, levels - 1))
      return true;
    if (!(branch.types & kObject)) return false;
    const PropertyIndex own = index_properties(branch);
    return std::ranges::any_of(branch.required, [&](std::string_view name) {
      return has_many(expander_.property_goal(branch, own, name), least, levels - 1);
    });
  });
}

/// Returns whether a branch certainly has so many strings.
bool Emitter::has_many_strings(const Branch& branch, std::uint64_t least) {
  least += branch.not_strings.size();
  if (branch.texts.empty()) return branch.max_length >= std::max(branch.min_length, 1u) && least < kCharacters;
  const Branch::Text* cause = nullptr;
  std::string problem;
  bool empty = false;
  const auto language = strings_.language(branch, Strings::Lengths::kWrittenOut, &cause, &problem);
  if (!language) return false;
  const auto shared = regex(language->pattern, &empty, &problem);
  return shared != nullptr && has_many_texts(*shared, least);
}

cfg::Expr Emitter::plain_array(const Branch& branch) {
  const std::uint32_t named = last_named_item(branch);
  if (named > limits_.counted_states) {
    problems_.wrong(0, "prefixItems is too long");
    return grammar_.never();
  }
  std::uint32_t most = branch.max_items;
  std::vector<Expr> first;
  for (std::uint32_t i = 0; i < std::min(named, most); i++) {
    first.push_back(value(branch.item_goal(i)));
    if (first.back() == grammar_.never()) most = i;
  }
  const std::uint32_t fixed = std::min(named, most);
  Expr rest = grammar_.never();
  if (most > fixed) rest = value(branch.item_goal(named));
  if (rest == grammar_.never()) most = fixed;
  if (branch.min_items > most) return grammar_.never();
  const std::uint32_t least = branch.min_items;
  const auto less = [](std::uint32_t a, std::uint32_t b) { return a > b ? a - b : 0; };
  const auto room = [&](std::uint32_t before) { return most == Branch::kNoLimit ? most : less(most, before); };
  // the items after number `fixed`, then from the last one to the second
  const std::uint32_t before = std::max(fixed, 1u);
  Expr tail = grammar_.empty();
  if (most > fixed) {
    const Expr more = rule("item", grammar_.sequence({marks_.comma(), rest}));
    tail = between(more, less(least, before), room(before));
  }
  for (std::uint32_t i = fixed; i-- > 1;) {
    const Expr with = grammar_.sequence({marks_.comma(), first[i], tail});
    tail = i < least ? with : grammar_.optional(with);
    if (i % kNested == 0) tail = rule("items", tail);
  }
  std::vector<Expr> all;
  if (least == 0) all.push_back(marks_.empty_array());
  const Expr inside = grammar_.sequence({fixed > 0 ? first[0] : rest, tail, marks_.close_array()});
  const bool differ = branch.unique != kNone && most > 1;
  if (most > 0) all.push_back(differ ? different_items("[", inside) : grammar_.sequence({marks_.open_array(), inside}));
  return grammar_.choice(all);
}

/// Counts items that satisfy `contains`: one rule for each combination of the number of items and of these counts.
cfg::Expr Emitter::counted_array(const Branch& branch) {
  const std::size_t kinds = branch.contains.size();
  std::uint32_t last = std::max({last_named_item(branch), branch.min_items, 1u});
  if (branch.max_items != Branch::kNoLimit) last = std::max(last, branch.max_items);
  std::vector<std::uint32_t> sizes;
  std::uint64_t states = 1;
  for (const Branch::Contains& one : branch.contains) {
    last = std::max(last, one.first);
    sizes.push_back((one.max == Branch::kNoLimit ? one.min : one.max) + 1);
    states = std::min<std::uint64_t>(states * sizes.back(), 1'000'000'000);
  }
  if (kinds > 3 || states * (last + 1ull) > limits_.counted_states) {
    problems_.unsupported(branch.contains[0].where, "too many items would have to be counted");
    return grammar_.never();
  }
  // state: the number of items (`last` means that many or more), then one count for each `contains`
  const auto number = [&](std::uint32_t at, const std::vector<std::uint32_t>& counts) {
    std::uint64_t id = at;
    for (std::size_t k = 0; k < kinds; k++) id = id * sizes[k] + counts[k];
    return static_cast<std::size_t>(id);
  };
  std::vector<cfg::Rule> rules;
  for (std::uint64_t i = 0; i < states * (last + 1); i++) rules.push_back(grammar_.declare("items"));
  for (std::size_t id = 0; id < rules.size(); id++) {
    std::vector<std::uint32_t> counts(kinds);
    std::size_t rest = id;
    for (std::size_t k = kinds; k-- > 0;) counts[k] = static_cast<std::uint32_t>(rest % sizes[k]), rest /= sizes[k];
    const auto at = static_cast<std::uint32_t>(rest);
    std::vector<Expr> all;
    bool enough = at >= branch.min_items;
    for (std::size_t k = 0; k < kinds; k++) enough = enough && counts[k] >= branch.contains[k].min;
    if (enough && at > 0) all.push_back(grammar_.empty());
    for (std::uint32_t met = 0; at < branch.max_items && met < 1u << kinds; met++) {
      std::vector<std::uint32_t> next = counts;
      Goal goal = branch.item_goal(at, met);
      bool possible = true;
      for (std::size_t k = 0; k < kinds; k++) {
        const Branch::Contains& one = branch.contains[k];
        const bool meets = met >> k & 1, limited = one.max != Branch::kNoLimit;
        if (at < one.first) {
          possible = possible && !meets;
          continue;
        }
        if (meets) {
          possible = possible && (!limited || counts[k] < one.max);
          next[k] = std::min(counts[k] + 1, sizes[k] - 1);
          goal.push_back(one.schema);
        } else if (limited) {
          goal.push_back(opposite(one.schema));
        }
      }
      if (!possible) continue;
      const std::uint32_t after = std::min(at + 1, last);
      all.push_back(grammar_.sequence(
          {at > 0 ? marks_.comma() : grammar_.empty(), value(goal), grammar_.call(rules[number(after, next)])}));
    }
    grammar_.define(rules[id], grammar_.choice(all));
  }
  const Expr body = grammar_.call(rules[number(0, std::vector<std::uint32_t>(kinds))]);
  bool none = branch.min_items == 0;
  for (const Branch::Contains& one : branch.contains) none = none && one.min == 0;
  const Expr inside = grammar_.sequence({body, marks_.close_array()});
  const bool differ = branch.unique != kNone && branch.max_items > 1;
  const Expr some = differ ? different_items("[", inside) : grammar_.sequence({marks_.open_array(), inside});
  return none ? grammar_.choice({marks_.empty_array(), some}) : some;
}

/// Returns arrays of different items with one rule for each set of used values; nothing if there are many values.
std::optional<cfg::Expr> Emitter::array_of_few_values(const Branch& branch) {
  std::vector<Expr> values;
  const Goal goal = expander_.simplify(branch.item_goal(0));
  const Shape& shape = expander_.use(goal);
  bool finite = last_named_item(branch) == 0 && branch.contains.empty();
  for (const Value value : shape.literals) values.push_back(literal(value, 0));
  for (const Branch& item : shape.branches) {
    finite = finite && !(item.types & static_cast<Types>(~(kNull | kFalse | kTrue)));
    if (item.types & kNull) values.push_back(grammar_.literal("null"));
    if (item.types & kFalse) values.push_back(grammar_.literal("false"));
    if (item.types & kTrue) values.push_back(grammar_.literal("true"));
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  if (!finite || values.size() > limits_.unique_values) return std::nullopt;
  std::vector<cfg::Rule> rules;
  for (std::uint32_t used = 0; used < 1u << values.size(); used++) rules.push_back(grammar_.declare("items"));
  for (std::uint32_t used = 0; used < rules.size(); used++) {
    const auto count = static_cast<std::uint32_t>(__builtin_popcount(used));
    std::vector<Expr> all;
    if (count >= branch.min_items && count > 0) all.push_back(grammar_.empty());
    for (std::uint32_t i = 0; i < values.size() && count < branch.max_items; i++)
      if (!(used >> i & 1))
        all.push_back(grammar_.sequence(
            {count > 0 ? marks_.comma() : grammar_.empty(), values[i], grammar_.call(rules[used | 1u << i])}));
    grammar_.define(rules[used], grammar_.choice(all));
  }
  const Expr some = grammar_.sequence({marks_.open_array(), grammar_.call(rules[0]), marks_.close_array()});
  return branch.min_items == 0 ? grammar_.choice({marks_.empty_array(), some}) : some;
}

}  // namespace aici::json_schema
