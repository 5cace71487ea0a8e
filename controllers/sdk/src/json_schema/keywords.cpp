// Applies keywords that narrow a branch, or choose between branches: combinations of schemas, types, values, numbers
// and strings.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "expander.hpp"

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

// References, allOf, anyOf, oneOf, not, if.

namespace {

/// Maximum number of required properties to examine whether one of them distinguishes two alternatives.
constexpr std::size_t kMaxDistinguishing = 32;

}  // namespace

void Expander::follow(Value schema, Value keyword, bool dynamic, bool negated, Branches& branches) {
  std::string problem = "a text is expected";
  Value target = kNone;
  if (document_.is(keyword, Kind::kString))
    target = dynamic ? scopes_.resolve(scope_, schema, document_.text(keyword), &problem)
                     : schemas_.resolve(schema, document_.text(keyword), &problem);
  if (target == kNone) return problems_.wrong(keyword, problem);
  apply(negated ? opposite(holds(target)) : holds(target), branches);
}

void Expander::ref(Value schema, Value keyword, Branches& branches) {
  follow(schema, keyword, false, false, branches);
}

void Expander::not_ref(Value schema, Value keyword, Branches& branches) {
  follow(schema, keyword, false, true, branches);
}

void Expander::dynamic_ref(Value schema, Value keyword, Branches& branches) {
  follow(schema, keyword, true, false, branches);
}

void Expander::not_dynamic_ref(Value schema, Value keyword, Branches& branches) {
  follow(schema, keyword, true, true, branches);
}

void Expander::all_of(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of schemas is expected")) return;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) apply(holds(document_.child(keyword, i)), branches);
}

void Expander::not_all_of(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of schemas is expected")) return;
  Branches all;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    Branches some = copy(branches);
    apply(opposite(holds(document_.child(keyword, i))), some);
    append(std::move(some), all);
  }
  branches = std::move(all);
}

void Expander::any_of(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of schemas is expected")) return;
  Branches all;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    Branches some = copy(branches);
    apply(holds(document_.child(keyword, i)), some);
    append(std::move(some), all);
  }
  branches = std::move(all);
}

void Expander::not_any_of(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of schemas is expected")) return;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++)
    apply(opposite(holds(document_.child(keyword, i))), branches);
}

/// Returns the names that `required` of this schema lists, which may come after the keyword that is being applied.
std::vector<std::string_view> Expander::own_required(Value schema) const {
  std::vector<std::string_view> names;
  const Value list = document_.find(schema, "required");
  if (document_.is(list, Kind::kArray))
    for (std::uint32_t i = 0; i < document_.count(list); i++)
      if (const Value name = document_.child(list, i); document_.is(name, Kind::kString))
        names.push_back(document_.text(name));
  return names;
}

/// Returns whether certainly no value satisfies both schemas and one of the branches, with `required` in addition.
bool Expander::disjoint(Value a, Value b, const Branches& within, const std::vector<std::string_view>& required) {
  const Goal both{holds(a), holds(b)};
  const std::pair pair{both[0], both[1]};
  const auto [known, added] = shared_.insert({pair, kAllTypes});
  if (added) {
    // possible() looks only a few levels deep. That limit suits nested goals, but not schemas next to each other.
    const std::uint32_t looking = std::exchange(looking_, 0);
    looking_ = looking > 1 ? looking : 0;
    const Types found = possible(both);
    looking_ = looking;
    shared_[pair] = found;
  }
  const Types shared = shared_[pair] & types_of(within);
  if (shared == 0) return true;
  // often they give the same property different values, and it is required beside them
  const auto shape = shapes_.find(both);
  if (shared != kObject || shape == shapes_.end()) return false;
  for (const Value value : shape->second->literals)
    if (document_.is(value, Kind::kObject)) return false;
  for (const Branch& branch : shape->second->branches) {
    if (!(branch.types & kObject)) continue;
    const PropertyIndex own = index_properties(branch);
    const auto lacks = [&](const std::vector<std::string_view>& names) {
      const std::size_t count = std::min(names.size(), kMaxDistinguishing);
      return std::any_of(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(count),
                         [&](std::string_view name) { return empty(property_goal(branch, own, name)); });
    };
    if (lacks(required)) continue;
    for (const Branch& outer : within)
      if (outer.types & kObject && !lacks(outer.required)) return false;
  }
  return true;
}

/// Excludes from each alternative all others, except those that are disjoint with it.
void Expander::one_of(Value schema, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of schemas is expected")) return;
  const std::uint32_t count = document_.count(keyword);
  const std::vector<std::string_view> required = own_required(schema);
  Branches all;
  for (std::uint32_t i = 0; i < count && !problems_.fatal(); i++) {
    Branches some = copy(branches);
    apply(holds(document_.child(keyword, i)), some);
    for (std::uint32_t j = 0; j < count && !some.empty() && !problems_.fatal(); j++) {
      const Value a = document_.child(keyword, std::min(i, j)), b = document_.child(keyword, std::max(i, j));
      if (i != j && !disjoint(a, b, some, required)) apply(opposite(holds(document_.child(keyword, j))), some);
    }
    append(std::move(some), all);
  }
  branches = std::move(all);
}

/// None of the alternatives holds, or two at once.
void Expander::not_one_of(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of schemas is expected")) return;
  const std::uint32_t count = document_.count(keyword);
  Branches all = copy(branches);
  for (std::uint32_t i = 0; i < count; i++) apply(opposite(holds(document_.child(keyword, i))), all);
  for (std::uint32_t i = 0; i < count && !problems_.fatal(); i++)
    for (std::uint32_t j = i + 1; j < count && !problems_.fatal(); j++) {
      const Value a = document_.child(keyword, i), b = document_.child(keyword, j);
      if (disjoint(a, b, branches, {})) continue;
      Branches some = copy(branches);
      apply(holds(a), some);
      apply(holds(b), some);
      append(std::move(some), all);
    }
  branches = std::move(all);
}

void Expander::negation(Value, Value keyword, Branches& branches) { apply(opposite(holds(keyword)), branches); }

void Expander::not_negation(Value, Value keyword, Branches& branches) { apply(holds(keyword), branches); }

void Expander::condition(Value schema, Value keyword, Branches& branches) {
  const Value then = document_.find(schema, "then"), otherwise = document_.find(schema, "else");
  // even without `then` and `else`, `if` matters for unevaluatedProperties
  if (then == kNone && otherwise == kNone && (branches.empty() || branches[0].marks.empty())) return;
  Branches no = copy(branches);
  apply(holds(keyword), branches);
  if (then != kNone) apply(holds(then), branches);
  apply(opposite(holds(keyword)), no);
  if (otherwise != kNone) apply(holds(otherwise), no);
  append(std::move(no), branches);
}

void Expander::not_condition(Value schema, Value keyword, Branches& branches) {
  const Value then = document_.find(schema, "then"), otherwise = document_.find(schema, "else");
  Branches all;
  if (then != kNone) {
    all = copy(branches);
    apply(holds(keyword), all);
    apply(opposite(holds(then)), all);
  }
  if (otherwise != kNone) {
    apply(opposite(holds(keyword)), branches);
    apply(opposite(holds(otherwise)), branches);
    append(std::move(branches), all);
  }
  branches = std::move(all);
}

// Types, values, numbers, strings.

std::optional<Types> Expander::types(Value keyword) {
  static constexpr std::pair<std::string_view, Types> kNames[] = {
      {"array", kArray},     {"boolean", kFalse | kTrue}, {"integer", kInteger}, {"null", kNull},
      {"number", kNumber},   {"object", kObject},         {"string", kString},
  };
  Types found = 0;
  const auto add = [&](Value name) {
    for (const auto& [known, types] : kNames)
      if (document_.is(name, Kind::kString) && document_.text(name) == known) return found |= types, true;
    problems_.wrong(name, "one of null, boolean, integer, number, string, array, object is expected");
    return false;
  };
  if (!document_.is(keyword, Kind::kArray)) return add(keyword) ? std::optional(found) : std::nullopt;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++)
    if (!add(document_.child(keyword, i))) return std::nullopt;
  return found;
}

void Expander::type(Value, Value keyword, Branches& branches) {
  if (const std::optional<Types> found = types(keyword)) each(branches, [&](Branch& b) { b.types &= *found; });
}

void Expander::not_type(Value, Value keyword, Branches& branches) {
  if (const std::optional<Types> found = types(keyword))
    each(branches, [&](Branch& b) { b.types &= static_cast<Types>(~*found); });
}

void Expander::keep_values(const std::vector<Value>& values, Branches& branches) {
  ValueSet kept(document_);
  for (const Value value : values) kept.add(value);
  each(branches, [&](Branch& b) {
    if (!b.values)
      b.values = values;
    else
      std::erase_if(*b.values, [&](Value known) { return !kept.contains(known); });
    drop_unmatched(b);
  });
}

/// Drops listed strings that do not match a pattern of the branch, so that fewer are compared with the whole goal.
void Expander::drop_unmatched(Branch& branch) {
  if (!branch.values) return;
  std::erase_if(*branch.values, [&](Value value) {
    return document_.is(value, Kind::kString) && std::ranges::any_of(branch.texts, [&](const Branch::Text& text) {
      return !text.format && strings_.matches(text.text, false, document_.text(value)) == std::optional(text.negated);
    });
  });
}

void Expander::enumeration(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of values is expected")) return;
  std::vector<Value> values;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) values.push_back(document_.child(keyword, i));
  keep_values(values, branches);
}

void Expander::not_enumeration(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of values is expected")) return;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) drop_value(document_.child(keyword, i), branches);
}

void Expander::constant(Value, Value keyword, Branches& branches) { keep_values({keyword}, branches); }

void Expander::not_constant(Value, Value keyword, Branches& branches) { drop_value(keyword, branches); }

/// An array or object differs if it has more items or properties, or lacks one, or one differs.
void Expander::drop_value(Value value, Branches& branches) {
  const auto inside = [&](Types type, auto change) {
    Branches all;
    for (std::uint32_t i = 0; i < document_.count(value); i++) {
      Branches some = copy(branches);
      each(some, [&](Branch& b) {
        b.types &= type;
        change(b, document_.child(value, i));
      });
      append(std::move(some), all);
    }
    return all;
  };
  // Listed values are compared with the whole goal at the end.
  switch (document_.kind(value)) {
    case Kind::kNull: return each(branches, [](Branch& b) { b.types &= static_cast<Types>(~kNull); });
    case Kind::kFalse: return each(branches, [](Branch& b) { b.types &= static_cast<Types>(~kFalse); });
    case Kind::kTrue: return each(branches, [](Branch& b) { b.types &= static_cast<Types>(~kTrue); });
    case Kind::kNumber:
      if (const std::optional<Decimal> found = number(value))
        for (Branch& b : branches) b.not_numbers.push_back(*found), b.numbers_at = value;
      return;
    case Kind::kString:
      for (Branch& b : branches) b.not_strings.push_back(document_.text(value));
      return;
    case Kind::kArray: {
      Branches others = inside(kArray, [&](Branch& b, Value item) {
        const std::uint32_t place = document_.position(item);
        b.items.push_back({place, place + 1, opposite(equals(item)), false});
      });
      each(branches, [&](Branch& b) { b.min_items = std::max(b.min_items, document_.count(value) + 1); });
      return append(std::move(others), branches);
    }
    case Kind::kObject: {
      if (document_.count(value) == 0)
        return each(branches, [](Branch& b) { b.min_properties = std::max(b.min_properties, 1u); });
      auto known = std::make_shared<KeySet>();
      Branches others = inside(kObject, [&](Branch& b, Value member) {
        b.properties.push_back({document_.name(member), opposite(equals(member)), false});
      });
      for (std::uint32_t i = 0; i < document_.count(value); i++)
        known->names.push_back(document_.name(document_.child(value, i)));
      std::ranges::sort(known->names);
      Branches more = copy(branches);
      some_property({known, std::nullopt, {}, {}, value}, more);
      append(std::move(more), others);
      each(branches, [](Branch& b) { b.types &= static_cast<Types>(~kObject); });
      return append(std::move(others), branches);
    }
  }
}

void Expander::low(Value keyword, bool open, Branches& branches) {
  const std::optional<Decimal> bound = number(keyword);
  if (bound) each(branches, [&](Branch& b) { b.raise(*bound, open), b.numbers_at = keyword; });
}

void Expander::high(Value keyword, bool open, Branches& branches) {
  const std::optional<Decimal> bound = number(keyword);
  if (bound) each(branches, [&](Branch& b) { b.lower(*bound, open), b.numbers_at = keyword; });
}

namespace {

void only(std::vector<Branch>& branches, Types types) {
  for (Branch& b : branches) b.types &= types;
}

}  // namespace

void Expander::minimum(Value schema, Value keyword, Branches& branches) {
  low(keyword, document_.is(document_.find(schema, "exclusiveMinimum"), Kind::kTrue), branches);
}
void Expander::not_minimum(Value schema, Value keyword, Branches& branches) {
  only(branches, kNumber);
  high(keyword, !document_.is(document_.find(schema, "exclusiveMinimum"), Kind::kTrue), branches);
}
void Expander::maximum(Value schema, Value keyword, Branches& branches) {
  high(keyword, document_.is(document_.find(schema, "exclusiveMaximum"), Kind::kTrue), branches);
}
void Expander::not_maximum(Value schema, Value keyword, Branches& branches) {
  only(branches, kNumber);
  low(keyword, !document_.is(document_.find(schema, "exclusiveMaximum"), Kind::kTrue), branches);
}

// In draft 4 this keyword is true or false, and applies to the bound next to it.
void Expander::exclusive_minimum(Value, Value keyword, Branches& branches) {
  if (document_.kind(keyword) != Kind::kTrue && document_.kind(keyword) != Kind::kFalse)
    low(keyword, true, branches);
}
void Expander::not_exclusive_minimum(Value, Value keyword, Branches& branches) {
  if (!document_.is(keyword, Kind::kNumber)) return branches.clear();
  only(branches, kNumber);
  high(keyword, false, branches);
}
void Expander::exclusive_maximum(Value, Value keyword, Branches& branches) {
  if (document_.kind(keyword) != Kind::kTrue && document_.kind(keyword) != Kind::kFalse)
    high(keyword, true, branches);
}
void Expander::not_exclusive_maximum(Value, Value keyword, Branches& branches) {
  if (!document_.is(keyword, Kind::kNumber)) return branches.clear();
  only(branches, kNumber);
  low(keyword, false, branches);
}

void Expander::multiple_of(Value, Value keyword, Branches& branches) {
  const std::optional<Decimal> divisor = number(keyword);
  if (!divisor) return;
  if (divisor->zero() || divisor->negative) return problems_.wrong(keyword, "a number above 0 is expected");
  for (Branch& b : branches) {
    if (std::find(b.multiples.begin(), b.multiples.end(), *divisor) != b.multiples.end()) continue;
    b.multiples.push_back(*divisor);
    b.numbers_at = keyword;
    if (divisor->integral()) b.types &= static_cast<Types>(~kFraction);
  }
  prune(branches);
}

void Expander::not_multiple_of(Value, Value keyword, Branches& branches) {
  only(branches, kNumber);
  prune(branches);
  const std::optional<Decimal> divisor = number(keyword);
  if (!divisor) return;
  if (divisor->zero() || divisor->negative) return problems_.wrong(keyword, "a number above 0 is expected");
  for (Branch& b : branches) b.not_multiples.push_back(*divisor), b.numbers_at = keyword;
}

void Expander::min_length(Value, Value keyword, Branches& branches) {
  if (const auto least = count(keyword))
    each(branches, [&](Branch& b) { b.min_length = std::max(b.min_length, *least), b.lengths_at = keyword; });
}
void Expander::not_min_length(Value, Value keyword, Branches& branches) {
  only(branches, kString);
  const auto least = count(keyword);
  if (least && *least == 0) return branches.clear();
  if (least) each(branches, [&](Branch& b) { b.max_length = std::min(b.max_length, *least - 1); });
}
void Expander::max_length(Value, Value keyword, Branches& branches) {
  if (const auto most = count(keyword))
    each(branches, [&](Branch& b) { b.max_length = std::min(b.max_length, *most), b.lengths_at = keyword; });
}
void Expander::not_max_length(Value, Value keyword, Branches& branches) {
  only(branches, kString);
  if (const auto most = count(keyword))
    each(branches, [&](Branch& b) { b.min_length = std::max(b.min_length, *most + 1); });
}

void Expander::add_text(Value keyword, bool format, bool negated, Branches& branches) {
  if (!document_.is(keyword, Kind::kString)) return problems_.wrong(keyword, "a text is expected");
  if (negated) only(branches, kString);
  prune(branches);
  const Pattern& pattern = strings_.read(document_.text(keyword), format, negated);
  if (!pattern.problem.empty()) return problem(branches, kString, keyword, pattern.problem.c_str());
  if (format && pattern.text.empty()) {
    if (negated) branches.clear();
    return;
  }
  each(branches, [&](Branch& b) {
    b.texts.push_back({document_.text(keyword), keyword, format, negated});
    drop_unmatched(b);
  });
}

void Expander::pattern(Value, Value keyword, Branches& branches) { add_text(keyword, false, false, branches); }
void Expander::not_pattern(Value, Value keyword, Branches& branches) { add_text(keyword, false, true, branches); }
void Expander::format(Value, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kString) && strings_.ignores_format(document_.text(keyword)))
    return problems_.remark(keyword, "this format is not known, so it is ignored");
  const Format* format = document_.is(keyword, Kind::kString) ? find_format(document_.text(keyword)) : nullptr;
  if (!format || !format->of_integers()) return add_text(keyword, true, false, branches);
  const auto low = Decimal::of(format->low, limits_.number_digits), high = Decimal::of(format->high, limits_.number_digits);
  each(branches, [&](Branch& b) {
    b.types &= static_cast<Types>(~kFraction);
    b.raise(*low, false), b.lower(*high, false);
    b.numbers_at = keyword;
  });
}

void Expander::not_format(Value, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kString) && strings_.ignores_format(document_.text(keyword))) return branches.clear();
  const Format* format = document_.is(keyword, Kind::kString) ? find_format(document_.text(keyword)) : nullptr;
  if (format && format->of_integers()) {
    only(branches, kNumber);
    return problem(branches, kNumber, keyword, "the negation of a number's format cannot be enforced");
  }
  add_text(keyword, true, true, branches);
}

void Expander::content(Value, Value keyword, Branches& branches) {
  problem(branches, kString, keyword, "the encoding of a text cannot be enforced");
}
void Expander::not_content(Value schema, Value keyword, Branches& branches) {
  only(branches, kString);
  content(schema, keyword, branches);
}

}  // namespace aici::json_schema
