// Keywords about objects.
#include <algorithm>

#include "expander.hpp"

namespace aici::json_schema {

void Expander::properties(Value, Value keyword, Branches& branches) {
  if (!is_map(keyword)) return;
  for (Branch& b : branches)
    for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
      const Value property = document_.child(keyword, i);
      b.properties.push_back({document_.name(property), holds(property), evaluates()});
    }
}

/// apply_negated has dealt with the property that tells alternatives apart.
void Expander::not_properties(Value schema, Value keyword, Branches& branches) {
  if (!is_map(keyword)) return;
  Branches all;
  const Value telling = telling_property(schema);
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    const Value property = document_.child(keyword, i);
    if (document_.is(property, Kind::kTrue) || property == telling) continue;
    Branches some = copy(branches);
    each(some, [&](Branch& b) {
      b.types &= kObject;
      b.require(document_.name(property));
      b.properties.push_back({document_.name(property), opposite(holds(property)), false});
    });
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

void Expander::not_required(Value, Value keyword, Branches& branches) {
  if (!document_.is(keyword, Kind::kArray)) return branches.clear();
  Branches all;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    Branches some = copy(branches);
    each(some, [&](Branch& b) {
      b.types &= kObject;
      b.properties.push_back({document_.text(document_.child(keyword, i)), kNever, false});
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

/// Requires a property that violates a keyword.
void Expander::some_property(Branch::Some some, Branches& branches) {
  each(branches, [&](Branch& b) {
    b.types &= kObject;
    b.min_properties = std::max(b.min_properties, 1u);
    b.some.push_back(some);
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
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) {
    const Value rule = document_.child(keyword, i);
    const bool names = document_.is(rule, Kind::kArray);
    if ((names && document_.count(rule) == 0) || document_.is(rule, Kind::kTrue)) continue;
    Branches without = copy(branches);
    for (Branch& b : without) {
      b.properties.push_back({document_.name(rule), kNever, false});
      if (b.requires_name(document_.name(rule))) b.types &= static_cast<Types>(~kObject);
    }
    prune(without);
    each(branches, [&](Branch& b) {
      b.types &= kObject;
      b.require(document_.name(rule));
    });
    if (names)
      require_names(rule, branches);
    else
      apply(holds(rule), branches);
    append(std::move(without), branches);
  }
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
