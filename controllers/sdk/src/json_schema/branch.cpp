#include "branch.hpp"

#include <algorithm>

namespace aici::json_schema {

void Branch::raise(const Decimal& low, bool open) {
  const int order = range.low ? compare(low, *range.low) : 1;
  if (order < 0) return;
  range.low_open = open || (order == 0 && range.low_open);
  range.low = low;
}

void Branch::lower(const Decimal& high, bool open) {
  const int order = range.high ? compare(high, *range.high) : -1;
  if (order > 0) return;
  range.high_open = open || (order == 0 && range.high_open);
  range.high = high;
}

void Branch::settle() {
  if (range.empty()) types &= ~kNumber;
  if (range.low && range.high && compare(range.low->ceiling(), range.high->floor()) > 0) types &= ~kInteger;
  if (min_length > max_length) types &= ~kString;
  if (min_items > max_items) types &= ~kArray;
  if (min_properties > max_properties || required.size() > max_properties) types &= ~kObject;
  if (values && values->empty()) types = 0;
}

bool Branch::requires_name(std::string_view name) const {
  return std::find(required.begin(), required.end(), name) != required.end();
}

bool Branch::applies(const Items& items, std::uint32_t position, std::uint32_t met) const {
  if (position < items.first || position >= items.end) return false;
  for (std::uint32_t i = items.first_excuse; i < items.end_excuses; i++)
    if (contains[i].evaluates && i < 32 && met >> i & 1) return false;
  return true;
}

Goal Branch::item_goal(std::uint32_t position, std::uint32_t met) const {
  Goal goal;
  for (const Items& one : items)
    if (applies(one, position, met)) goal.push_back(one.schema);
  return goal;
}

void Branch::require(std::string_view name) {
  if (!requires_name(name)) required.push_back(name);
}

}  // namespace aici::json_schema
