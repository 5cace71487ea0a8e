#include "scopes.hpp"

namespace aici::json_schema {

Scope Scopes::enter(Scope scope, Value schema) {
  if (scopes_[0].empty()) return 0;
  Targets targets = scopes_[scope];
  bool changed = false;
  for (const auto& [name, anchor] : schemas_.ambiguous_anchors(schema))
    if (targets[name] == kNone) targets[name] = anchor, changed = true;
  if (!changed) return scope;
  const auto [known, added] = numbers_.try_emplace(targets, static_cast<Scope>(scopes_.size()));
  if (!added) return known->second;
  if (scopes_.size() == kMax) {
    numbers_.erase(known);
    overflow_ = true;
    return scope;
  }
  scopes_.push_back(std::move(targets));
  return known->second;
}

Value Scopes::resolve(Scope scope, Value schema, std::string_view reference, std::string* problem) const {
  std::uint32_t name = kNone;
  const Value target = schemas_.resolve_dynamic(schema, reference, &name, problem);
  if (target == kNone || name == kNone) return target;
  return scopes_[scope][name] != kNone ? scopes_[scope][name] : target;
}

}  // namespace aici::json_schema
