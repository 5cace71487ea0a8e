// Keywords about arrays.
#include <algorithm>

#include "expander.hpp"

namespace aici::json_schema {

/// Returns the number of items with their own schemas.
std::uint32_t Expander::prefix_size(Value schema) const {
  const Value list = document_.find(schema, is_older(schema, Draft::k2020) ? "items" : "prefixItems");
  return document_.is(list, Kind::kArray) ? document_.count(list) : 0;
}

void Expander::rest_of_items(std::uint32_t from, Value keyword, bool negated, Branches& branches) {
  if (!negated) {
    for (Branch& b : branches) b.items.push_back({from, Branch::kNoLimit, holds(keyword), evaluates()});
    if (document_.is(keyword, Kind::kFalse))
      each(branches, [&](Branch& b) { b.max_items = std::min(b.max_items, from); });
    return;
  }
  for (Branch& b : branches) {
    b.types &= kArray;
    b.contains.push_back({from, opposite(holds(keyword)), 1, Branch::kNoLimit, keyword});
    b.min_items = std::max(b.min_items, from + 1);
  }
  prune(branches);
}

void Expander::items(Value schema, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kArray) && is_older(schema, Draft::k2020))
    return prefix_items(schema, keyword, branches);
  rest_of_items(is_older(schema, Draft::k2020) ? 0 : prefix_size(schema), keyword, false, branches);
}

void Expander::not_items(Value schema, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kArray) && is_older(schema, Draft::k2020))
    return not_prefix_items(schema, keyword, branches);
  rest_of_items(is_older(schema, Draft::k2020) ? 0 : prefix_size(schema), keyword, true, branches);
}

void Expander::prefix_items(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of schemas is expected")) return;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++)
    for (Branch& b : branches) b.items.push_back({i, i + 1, holds(document_.child(keyword, i)), evaluates()});
}

void Expander::not_prefix_items(Value, Value keyword, Branches& branches) {
  Branches all;
  if (!is_list(keyword, "a list of schemas is expected")) return branches.clear();
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    Branches some = copy(branches);
    each(some, [&](Branch& b) {
      b.types &= kArray;
      b.min_items = std::max(b.min_items, i + 1);
      b.items.push_back({i, i + 1, opposite(holds(document_.child(keyword, i))), false});
    });
    append(std::move(some), all);
  }
  branches = std::move(all);
}

/// Only next to a list in `items`.
void Expander::additional_items(Value schema, Value keyword, Branches& branches) {
  if (document_.is(document_.find(schema, "items"), Kind::kArray))
    rest_of_items(prefix_size(schema), keyword, false, branches);
}

void Expander::not_additional_items(Value schema, Value keyword, Branches& branches) {
  if (document_.is(document_.find(schema, "items"), Kind::kArray))
    rest_of_items(prefix_size(schema), keyword, true, branches);
  else
    branches.clear();
}

void Expander::contains(Value schema, Value keyword, Branches& branches) {
  std::uint32_t least = 1, most = Branch::kNoLimit;
  if (!is_older(schema, Draft::k2019)) {
    if (const Value min = document_.find(schema, "minContains"); min != kNone) least = count(min).value_or(1);
    if (const Value max = document_.find(schema, "maxContains"); max != kNone) most = count(max).value_or(most);
  }
  const bool evaluates = !is_older(schema, Draft::k2020) && this->evaluates();
  const bool asked = evaluates && !branches.empty() && !branches[0].marks.empty();
  if (least > 0 || most < Branch::kNoLimit || asked)
    each(branches, [&](Branch& b) {
      b.contains.push_back({0, holds(keyword), least, most, keyword, evaluates});
      b.min_items = std::max(b.min_items, least);
      if (least > most) b.types &= static_cast<Types>(~kArray);
    });
}

void Expander::not_contains(Value schema, Value keyword, Branches& branches) {
  std::uint32_t least = 1, most = Branch::kNoLimit;
  if (!is_older(schema, Draft::k2019)) {
    if (const Value min = document_.find(schema, "minContains"); min != kNone) least = count(min).value_or(1);
    if (const Value max = document_.find(schema, "maxContains"); max != kNone) most = count(max).value_or(most);
  }
  Branches all;
  each(branches, [](Branch& b) { b.types &= kArray; });
  if (least > 0) {
    all = copy(branches);
    for (Branch& b : all) b.contains.push_back({0, holds(keyword), 0, least - 1, keyword});
  }
  if (most < Branch::kNoLimit) {
    for (Branch& b : branches) {
      b.contains.push_back({0, holds(keyword), most + 1, Branch::kNoLimit, keyword});
      b.min_items = std::max(b.min_items, most + 1);
    }
    append(std::move(branches), all);
  }
  branches = std::move(all);
  prune(branches);
}

void Expander::min_items(Value, Value keyword, Branches& branches) {
  if (const auto least = count(keyword))
    each(branches, [&](Branch& b) { b.min_items = std::max(b.min_items, *least); });
}
void Expander::not_min_items(Value, Value keyword, Branches& branches) {
  const auto least = count(keyword);
  if (least && *least == 0) return branches.clear();
  if (least)
    each(branches, [&](Branch& b) { b.types &= kArray, b.max_items = std::min(b.max_items, *least - 1); });
}
void Expander::max_items(Value, Value keyword, Branches& branches) {
  if (const auto most = count(keyword))
    each(branches, [&](Branch& b) { b.max_items = std::min(b.max_items, *most); });
}
void Expander::not_max_items(Value, Value keyword, Branches& branches) {
  if (const auto most = count(keyword))
    each(branches, [&](Branch& b) { b.types &= kArray, b.min_items = std::max(b.min_items, *most + 1); });
}

void Expander::unique_items(Value, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kTrue))
    for (Branch& b : branches) b.unique = keyword;
}
void Expander::not_unique_items(Value, Value keyword, Branches& branches) {
  if (!document_.is(keyword, Kind::kTrue)) return branches.clear();
  each(branches, [](Branch& b) { b.types &= kArray, b.min_items = std::max(b.min_items, 2u); });
  problem(branches, kArray, keyword, "the negation of uniqueItems cannot be enforced");
}

/// Applies to items beyond those that this schema and the schemas that it applies describe, except those that meet one
/// of their `contains`.
void Expander::unevaluated_items(Value, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kTrue)) return rest_of_items(0, keyword, false, branches);
  for (Branch& b : branches) {
    const Branch::Mark& mark = b.marks.back();
    std::uint32_t from = 0;
    for (std::size_t i = mark.items; i < b.items.size(); i++)
      if (b.items[i].evaluates) from = std::max(from, b.items[i].end);
    if (from == Branch::kNoLimit) continue;
    const auto first = static_cast<std::uint32_t>(mark.contains), end = static_cast<std::uint32_t>(b.contains.size());
    bool excused = false;
    for (std::uint32_t i = first; i < end; i++) excused = excused || b.contains[i].evaluates;
    b.items.push_back({from, Branch::kNoLimit, holds(keyword), evaluates(), first, end});
    if (document_.is(keyword, Kind::kFalse) && !excused) b.max_items = std::min(b.max_items, from);
  }
  prune(branches);
}

}  // namespace aici::json_schema
