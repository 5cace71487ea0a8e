// Keywords that combine schemas: references, allOf, anyOf, oneOf, not, if.
#include <algorithm>

#include "expander.hpp"

namespace aici::json_schema {
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
  if (shared != kObject || shape == shapes_.end() || shape->second->left_out & kObject) return false;
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

}  // namespace aici::json_schema
