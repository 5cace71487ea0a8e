// Keywords that combine schemas: references, allOf, anyOf, oneOf, not, if.
#include "expander.hpp"

namespace aici::json_schema {

void Expander::follow(Value schema, Value keyword, Resolve resolve, bool negated, Branches& branches) {
  std::string problem = "a text is expected";
  const bool text = document_.is(keyword, Kind::kString);
  const Value target = text ? (schemas_.*resolve)(schema, document_.text(keyword), &problem) : kNone;
  if (target == kNone) return problems_.wrong(keyword, problem);
  apply(negated ? opposite(holds(target)) : holds(target), branches);
}

void Expander::ref(Value schema, Value keyword, Branches& branches) {
  follow(schema, keyword, &Schemas::resolve, false, branches);
}

void Expander::not_ref(Value schema, Value keyword, Branches& branches) {
  follow(schema, keyword, &Schemas::resolve, true, branches);
}

void Expander::dynamic_ref(Value schema, Value keyword, Branches& branches) {
  follow(schema, keyword, &Schemas::resolve_dynamic, false, branches);
}

void Expander::not_dynamic_ref(Value schema, Value keyword, Branches& branches) {
  follow(schema, keyword, &Schemas::resolve_dynamic, true, branches);
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

/// Returns whether certainly no value satisfies both.
bool Expander::disjoint(Value a, Value b) {
  const auto [known, added] = disjoint_.insert({{a, b}, false});
  if (!added) return known->second;
  // empty() looks only a few levels deep. That limit suits nested goals, but not schemas next to each other.
  const std::uint32_t looking = std::exchange(looking_, 0);
  looking_ = looking > 1 ? looking : 0;
  const bool found = empty({holds(a), holds(b)});
  looking_ = looking;
  return disjoint_[{a, b}] = found;
}

/// Excludes from each alternative all others, except those that are disjoint with it.
void Expander::one_of(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of schemas is expected")) return;
  const std::uint32_t count = document_.count(keyword);
  Branches all;
  for (std::uint32_t i = 0; i < count && !problems_.fatal(); i++) {
    Branches some = copy(branches);
    apply(holds(document_.child(keyword, i)), some);
    for (std::uint32_t j = 0; j < count && !some.empty() && !problems_.fatal(); j++) {
      const Value a = document_.child(keyword, std::min(i, j)), b = document_.child(keyword, std::max(i, j));
      if (i != j && !disjoint(a, b)) apply(opposite(holds(document_.child(keyword, j))), some);
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
      if (disjoint(a, b)) continue;
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
