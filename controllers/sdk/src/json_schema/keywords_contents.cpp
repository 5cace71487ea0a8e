// Applies keywords about the contents of arrays and objects.
#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

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

void Expander::properties(Value, Value keyword, Branches& branches) {
  if (!is_map(keyword)) return;
  for (Branch& b : branches)
    for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
      const Value property = document_.child(keyword, i);
      b.properties.push_back({document_.name(property), holds(property), evaluates()});
    }
}

/// Leaves objects that a property makes invalid: by its value or, if it is required, by its absence.
void Expander::violate(Value schema, Value property, Branches& branches) {
  const std::string_view name = document_.name(property);
  const std::vector<std::string_view> required = own_required(schema);
  const bool may_lack = std::ranges::find(required, name) != required.end();
  each(branches, [&](Branch& b) {
    b.types &= kObject;
    if (!may_lack) b.require(name);
    b.properties.push_back({name, opposite(holds(property)), false});
  });
}

/// apply_negated has dealt with the discriminator.
void Expander::not_properties(Value schema, Value keyword, Branches& branches) {
  if (!is_map(keyword)) return;
  Branches all;
  const Value discriminator = this->discriminator(schema);
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    const Value property = document_.child(keyword, i);
    if (document_.is(property, Kind::kTrue) || property == discriminator) continue;
    Branches some = copy(branches);
    violate(schema, property, some);
    append(std::move(some), all);
  }
  branches = std::move(all);
}

void Expander::require_names(Value list, Branches& branches) {
  if (!is_list(list, "a list of names is expected")) return;
  if (document_.count(list) > limits_.names) return problems_.wrong(list, "there are too many names");
  for (std::uint32_t i = 0; i < document_.count(list); i++) {
    const Value name = document_.child(list, i);
    if (!document_.is(name, Kind::kString)) return problems_.wrong(name, "a name is expected");
    for (Branch& b : branches) b.require(document_.text(name));
  }
  prune(branches);
}

void Expander::required(Value, Value keyword, Branches& branches) {
  // in draft 3 this keyword is true or false, and some schemas still use that form
  if (document_.kind(keyword) == Kind::kTrue || document_.kind(keyword) == Kind::kFalse)
    return problem(branches, kAllTypes, keyword, "a list of names is expected: this form is of draft 3");
  require_names(keyword, branches);
}

/// not_properties has dealt with names that have a schema. `schema` is kNone for lists of other keywords.
void Expander::not_required(Value schema, Value keyword, Branches& branches) {
  if (!document_.is(keyword, Kind::kArray)) return branches.clear();
  Branches all;
  const Value properties = schema == kNone ? kNone : own(schema, "properties");
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    const std::string_view name = document_.text(document_.child(keyword, i));
    const Value property = document_.find(properties, name);
    if (property != kNone && !document_.is(property, Kind::kTrue)) continue;
    Branches some = copy(branches);
    each(some, [&](Branch& b) {
      b.types &= kObject;
      b.properties.push_back({name, kNever, false});
    });
    append(std::move(some), all);
  }
  branches = std::move(all);
}

void Expander::pattern_properties(Value, Value keyword, Branches& branches) {
  if (!is_map(keyword)) return;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    const Value property = document_.child(keyword, i);
    const Pattern& pattern = strings_.read(document_.name(property), false);
    if (!pattern.problem.empty()) {
      problem(branches, kObject, property, pattern.problem.c_str());
      continue;
    }
    for (Branch& b : branches) b.patterns.push_back({document_.name(property), holds(property), evaluates()});
  }
}

/// Returns the names of the properties that `properties` and `patternProperties` of this schema describe.
std::shared_ptr<const KeySet> Expander::described(Value schema) const {
  auto known = std::make_shared<KeySet>();
  const Value properties = document_.find(schema, "properties"), patterns = document_.find(schema, "patternProperties");
  if (document_.is(properties, Kind::kObject))
    for (std::uint32_t i = 0; i < document_.count(properties); i++)
      known->names.push_back(document_.name(document_.child(properties, i)));
  if (document_.is(patterns, Kind::kObject))
    for (std::uint32_t i = 0; i < document_.count(patterns); i++)
      known->patterns.push_back(document_.name(document_.child(patterns, i)));
  std::sort(known->names.begin(), known->names.end());
  return known;
}

void Expander::additional_properties(Value schema, Value keyword, Branches& branches) {
  const std::shared_ptr<const KeySet> known = described(schema);
  for (Branch& b : branches) b.additional.push_back({known, holds(keyword), evaluates()});
}

void Expander::property_names(Value, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kTrue)) return;
  if (document_.is(keyword, Kind::kFalse)) return each(branches, [](Branch& b) { b.max_properties = 0; });
  for (Branch& b : branches) b.names.push_back(holds(keyword));
}

/// Requires a property that violates a keyword. Where additionalProperties leaves one name for it, the property of this
/// name is required, so that alternatives that exclude each other by their only properties are not multiplied out.
void Expander::some_property(Branch::Some some, Branches& branches) {
  each(branches, [&](Branch& b) {
    b.types &= kObject;
    b.min_properties = std::max(b.min_properties, 1u);
    const auto closed = std::ranges::find_if(b.additional, [&](const Branch::Additional& one) {
      const bool none = !is_negated(one.schema) && document_.is(schema_of(one.schema), Kind::kFalse);
      return none && one.known->patterns.empty();
    });
    if (closed == b.additional.end() || !some.outside || !some.outside->patterns.empty()) return b.some.push_back(some);
    const auto left_by = [&](const Branch::Some& one) {
      std::vector<std::string_view> names;
      std::ranges::set_difference(closed->known->names, one.outside->names, std::back_inserter(names));
      return names;
    };
    const std::vector<std::string_view> left = left_by(some);
    if (left.size() > 1) {
      // of two that any value meets, the one that leaves fewer names implies the other
      const auto has_any_value = [&](const Branch::Some& one) {
        return one.outside && one.outside->patterns.empty() && one.names.empty() && !one.pattern &&
               simplify(one.values).empty();
      };
      if (!has_any_value(some)) return b.some.push_back(some);
      if (std::ranges::any_of(left, [&](std::string_view name) { return b.requires_name(name); })) return;
      for (const Branch::Some& one : b.some)
        if (has_any_value(one) && std::ranges::includes(left, left_by(one))) return;
      std::erase_if(b.some, [&](const Branch::Some& one) {
        return has_any_value(one) && std::ranges::includes(left_by(one), left);
      });
      return b.some.push_back(some);
    }
    if (left.empty()) return void(b.types = 0);
    b.require(left[0]);
    for (const Atom value : some.values) b.properties.push_back({left[0], value, false});
  });
}

void Expander::not_additional_properties(Value schema, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kTrue)) return branches.clear();
  some_property({described(schema), std::nullopt, {}, {opposite(holds(keyword))}, keyword}, branches);
}

void Expander::not_pattern_properties(Value, Value keyword, Branches& branches) {
  if (!is_map(keyword)) return;
  Branches all;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    const Value property = document_.child(keyword, i);
    if (document_.is(property, Kind::kTrue)) continue;
    Branches one = copy(branches);
    const Pattern& pattern = strings_.read(document_.name(property), false);
    some_property({nullptr, document_.name(property), {}, {opposite(holds(property))}, property}, one);
    if (!pattern.problem.empty()) problem(one, kObject, property, pattern.problem.c_str());
    append(std::move(one), all);
  }
  branches = std::move(all);
}

void Expander::not_property_names(Value, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kTrue)) return branches.clear();
  some_property({nullptr, std::nullopt, {opposite(holds(keyword))}, {}, keyword}, branches);
}

void Expander::min_properties(Value, Value keyword, Branches& branches) {
  if (const auto least = count(keyword))
    each(branches, [&](Branch& b) {
      b.min_properties = std::max(b.min_properties, *least);
      b.min_properties_at = keyword;
    });
}
void Expander::not_min_properties(Value, Value keyword, Branches& branches) {
  const auto least = count(keyword);
  if (least && *least == 0) return branches.clear();
  if (least)
    each(branches, [&](Branch& b) { b.types &= kObject, b.max_properties = std::min(b.max_properties, *least - 1); });
}
void Expander::max_properties(Value, Value keyword, Branches& branches) {
  if (const auto most = count(keyword))
    each(branches, [&](Branch& b) { b.max_properties = std::min(b.max_properties, *most); });
}
void Expander::not_max_properties(Value, Value keyword, Branches& branches) {
  if (const auto most = count(keyword))
    each(branches, [&](Branch& b) {
      b.types &= kObject;
      b.min_properties = std::max(b.min_properties, *most + 1);
      b.min_properties_at = keyword;
    });
}

/// dependentRequired, dependentSchemas and both forms of `dependencies`: the property is absent, or more constraints
/// hold.
void Expander::dependent(Value, Value keyword, Branches& branches) {
  if (!is_map(keyword)) return;
  // leaves objects with a property, and returns the other ones and values of other types
  const auto split = [&](std::string_view name) {
    Branches without = copy(branches);
    each(without, [&](Branch& b) {
      b.properties.push_back({name, kNever, false});
      if (b.requires_name(name)) b.types &= static_cast<Types>(~kObject);
    });
    each(branches, [&](Branch& b) {
      b.types &= kObject;
      b.require(name);
    });
    return without;
  };
  const std::string_view common = common_property(keyword);
  Branches lacking;
  if (!common.empty()) lacking = split(common);
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    const Value rule = document_.child(keyword, i);
    const bool names = document_.is(rule, Kind::kArray);
    if ((names && document_.count(rule) == 0) || document_.is(rule, Kind::kTrue)) continue;
    Branches without = split(document_.name(rule));
    if (names)
      require_names(rule, branches);
    else
      apply(holds(rule), branches);
    append(std::move(without), branches);
    if (!common.empty()) std::erase_if(branches, [&](Branch& b) { return drop_impossible(b); });
  }
  append(std::move(lacking), branches);
}

/// Returns the property that all of several rules are about: those that exclude each other by its value are not
/// multiplied out if it is present, and none of them matters if it is not. Empty if there is no such property.
std::string_view Expander::common_property(Value keyword) const {
  const Value first = document_.count(keyword) > 2 ? document_.child(keyword, 0) : kNone;
  const auto only = [&](Value rule) {
    const Value properties = document_.is(rule, Kind::kObject) ? document_.find(rule, "properties") : kNone;
    const bool one = properties != kNone && document_.count(rule) == 1 && document_.is(properties, Kind::kObject) &&
                     document_.count(properties) == 1;
    return one ? document_.name(document_.child(properties, 0)) : std::string_view();
  };
  const std::string_view name = first == kNone ? std::string_view() : only(first);
  for (std::uint32_t i = 1; !name.empty() && i < document_.count(keyword); i++)
    if (only(document_.child(keyword, i)) != name) return {};
  return name;
}

void Expander::not_dependent(Value, Value keyword, Branches& branches) {
  if (!is_map(keyword)) return;
  Branches all;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    const Value rule = document_.child(keyword, i);
    Branches some = copy(branches);
    each(some, [&](Branch& b) {
      b.types &= kObject;
      b.require(document_.name(rule));
    });
    if (document_.is(rule, Kind::kArray))
      not_required(kNone, rule, some);
    else
      apply(opposite(holds(rule)), some);
    append(std::move(some), all);
  }
  branches = std::move(all);
}

/// Like additionalProperties, except for properties that this schema and the schemas that it applies describe.
void Expander::unevaluated_properties(Value, Value keyword, Branches& branches) {
  for (Branch& b : branches) {
    const Branch::Mark& mark = b.marks.back();
    auto known = std::make_shared<KeySet>();
    bool all = false;
    for (std::size_t i = mark.properties; i < b.properties.size(); i++)
      if (b.properties[i].evaluates) known->names.push_back(b.properties[i].name);
    for (std::size_t i = mark.patterns; i < b.patterns.size(); i++)
      if (b.patterns[i].evaluates) known->patterns.push_back(b.patterns[i].name);
    for (std::size_t i = mark.additional; i < b.additional.size(); i++) all = all || b.additional[i].evaluates;
    if (all) continue;
    std::sort(known->names.begin(), known->names.end());
    b.additional.push_back({known, holds(keyword), evaluates()});
  }
}

void Expander::not_unevaluated(Value, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kTrue)) return branches.clear();
  const bool items = document_.name(keyword) == "unevaluatedItems";
  each(branches, [&](Branch& b) { b.types &= items ? kArray : kObject; });
  problem(branches, items ? kArray : kObject, keyword, "the negation of this keyword cannot be enforced");
}

}  // namespace aici::json_schema
