#include "expander.hpp"

#include <algorithm>
#include <iterator>

namespace aici::json_schema {
namespace {

/// Maximum depth of goals to examine whether they are empty: deep enough for what distinguishes alternatives.
constexpr std::uint32_t kMaxLooking = 3;
/// When a keyword adds branches beyond this number, impossible ones are dropped before the next keyword multiplies them.
constexpr std::size_t kManyBranches = 16;
/// Maximum number of values of a discriminator, a property that may tell alternatives apart.
constexpr std::uint32_t kMaxDiscriminatorValues = 64;

}  // namespace

const Expander::Keyword* Expander::find_keyword(std::string_view name) {
  using E = Expander;
  static constexpr Keyword kKeywords[] = {
      {"$dynamicRef", &E::dynamic_ref, &E::not_dynamic_ref, Draft::k2020},
      {"$recursiveRef", &E::dynamic_ref, &E::not_dynamic_ref, Draft::k2019, Draft::k2019},
      {"$ref", &E::ref, &E::not_ref},
      {"additionalItems", &E::additional_items, &E::not_additional_items, Draft::k4, Draft::k2019},
      {"additionalProperties", &E::additional_properties, &E::not_additional_properties},
      {"allOf", &E::all_of, &E::not_all_of},
      {"anyOf", &E::any_of, &E::not_any_of},
      {"const", &E::constant, &E::not_constant, Draft::k6},
      {"contains", &E::contains, &E::not_contains, Draft::k6},
      // in later drafts, these are annotations
      {"contentEncoding", &E::content, &E::not_content, Draft::k7, Draft::k7},
      {"contentMediaType", &E::content, &E::not_content, Draft::k7, Draft::k7},
      {"dependencies", &E::dependent, &E::not_dependent},
      {"dependentRequired", &E::dependent, &E::not_dependent, Draft::k2019},
      {"dependentSchemas", &E::dependent, &E::not_dependent, Draft::k2019},
      {"enum", &E::enumeration, &E::not_enumeration},
      {"exclusiveMaximum", &E::exclusive_maximum, &E::not_exclusive_maximum},
      {"exclusiveMinimum", &E::exclusive_minimum, &E::not_exclusive_minimum},
      {"format", &E::format, &E::not_format},
      {"if", &E::condition, &E::not_condition, Draft::k7},
      {"items", &E::items, &E::not_items},
      {"maxItems", &E::max_items, &E::not_max_items},
      {"maxLength", &E::max_length, &E::not_max_length},
      {"maxProperties", &E::max_properties, &E::not_max_properties},
      {"maximum", &E::maximum, &E::not_maximum},
      {"minItems", &E::min_items, &E::not_min_items},
      {"minLength", &E::min_length, &E::not_min_length},
      {"minProperties", &E::min_properties, &E::not_min_properties},
      {"minimum", &E::minimum, &E::not_minimum},
      {"multipleOf", &E::multiple_of, &E::not_multiple_of},
      {"not", &E::negation, &E::not_negation},
      {"oneOf", &E::one_of, &E::not_one_of},
      {"pattern", &E::pattern, &E::not_pattern},
      {"patternProperties", &E::pattern_properties, &E::not_pattern_properties},
      {"prefixItems", &E::prefix_items, &E::not_prefix_items, Draft::k2020},
      {"properties", &E::properties, &E::not_properties},
      {"propertyNames", &E::property_names, &E::not_property_names, Draft::k6},
      {"required", &E::required, &E::not_required},
      {"type", &E::type, &E::not_type},
      {"uniqueItems", &E::unique_items, &E::not_unique_items},
  };
  for (const Keyword& keyword : kKeywords)
    if (keyword.name == name) return &keyword;
  return nullptr;
}

const Expander::Keyword* Expander::keyword_in(Value schema, std::string_view name) const {
  const Keyword* keyword = find_keyword(name);
  const Draft draft = schemas_.draft(schema);
  return keyword && draft >= keyword->first && draft <= keyword->last ? keyword : nullptr;
}

/// Returns whether the name is one of unevaluatedItems and unevaluatedProperties, which depend on all other keywords.
bool Expander::has_unevaluated(Value schema, std::string_view name) const {
  return !is_older(schema, Draft::k2019) && (name == "unevaluatedItems" || name == "unevaluatedProperties");
}

const Shape& Expander::use(const Goal& goal) {
  const Shape& found = shape(goal);
  for (const auto& [where, reason] : found.problems) problems_.unsupported(where, reason);
  return found;
}

const Shape& Expander::shape(const Goal& goal) {
  std::unique_ptr<Shape>& shape = shapes_[goal];
  if (shape) return *shape;
  shape = std::make_unique<Shape>();
  if (shapes_.size() > limits_.goals) {
    problems_.wrong(0, "the schema expands to too many rules");
    return *shape;
  }
  Branches all = branches(goal);
  // while this is computed, another goal may ask whether it is empty: assume that it is not
  shape->branches.resize(1);
  finish(goal, std::move(all), shape.get());
  return *shape;
}

Expander::Branches Expander::branches(const Goal& goal) {
  std::vector<Atom> outside;
  outside.swap(inside_);
  const std::uint32_t copied = std::exchange(copied_, 0);
  Branches all(1);
  for (const Atom atom : goal) apply(atom, all);
  copied_ = copied;
  outside.swap(inside_);
  return all;
}

Types Expander::possible(const Goal& goal) {
  if (goal.empty()) return kAllTypes;
  if (goal.size() == 1 && goal[0] == kNever) return 0;
  const auto known = shapes_.find(goal);
  if (known == shapes_.end() && looking_ >= kMaxLooking) return kAllTypes;
  looking_++;
  const Shape& found = shape(goal);
  looking_--;
  Types types = types_of(found.branches);
  for (const Value value : found.literals) types |= type_of(value);
  return types;
}

void Expander::finish(const Goal& goal, Branches branches, Shape* shape) {
  std::vector<Value> literals;
  ValueSet known(document_);
  Branches kept;
  for (Branch& branch : branches) {
    if (branch.values) {
      for (const Value value : *branch.values) {
        if (!known.add(value)) continue;  // many branches may list it
        const std::optional<bool> meets = validator_.meets(value, goal);
        if (!meets) shape->problems.emplace_back(value, "cannot determine whether this value meets the schema");
        if (meets.value_or(true)) literals.push_back(value);
      }
    } else if (!drop_impossible(branch)) {
      kept.push_back(std::move(branch));
    }
  }
  for (const Branch& branch : kept)
    for (const Branch::Problem& problem : branch.problems)
      if (problem.types & branch.types) shape->problems.emplace_back(problem.where, problem.reason);
  shape->literals = std::move(literals);
  shape->branches = std::move(kept);
}

std::vector<Goal> Expander::necessary(const Branch& branch, Types type) {
  std::vector<Goal> goals;
  if (type == kObject && !branch.required.empty()) {
    const PropertyIndex own = index_properties(branch);
    for (const std::string_view name : branch.required) goals.push_back(property_goal(branch, own, name));
  } else if (type == kArray) {
    for (std::uint32_t i = 0; i < std::min(branch.min_items, 8u); i++)
      goals.push_back(simplify(branch.item_goal(i, 0xffffffff)));
  }
  return goals;
}

/// Removes types without a possible value because of their contents; returns whether no type is left.
bool Expander::drop_impossible(Branch& branch) {
  for (const Types type : {kObject, kArray}) {
    if (!(branch.types & type)) continue;
    const std::vector<Goal> goals = necessary(branch, type);
    if (std::any_of(goals.begin(), goals.end(), [&](const Goal& goal) { return empty(goal); }))
      branch.types &= static_cast<Types>(~type);
  }
  if (branch.types & kString && strings_.exclude_each_other(branch)) branch.types &= static_cast<Types>(~kString);
  return branch.types == 0;
}

/// Drops impossible branches if there are more than so many.
void Expander::drop_impossible(std::size_t most, Branches& branches) {
  if (branches.size() > most) std::erase_if(branches, [&](Branch& branch) { return drop_impossible(branch); });
}

/// Returns the atom of a schema that is applied from a scope.
Atom Expander::enter(Value schema, Scope scope) {
  const Scope inside = scopes_.enter(scope, schema);
  if (scopes_.overflow() && !problems_.fatal())
    problems_.wrong(schema, "the targets of dynamic references depend on too many combinations of schemas");
  return json_schema::holds(schema, inside);
}

/// Skips schemas that only refer to others.
Atom Expander::simplify(Atom atom) {
  for (int i = 0; i < 16 && !is_value(atom); i++) {
    const Value schema = schema_of(atom), ref = document_.find(schema, "$ref");
    if (!document_.is(ref, Kind::kString)) return atom;
    for (std::uint32_t k = 0; k < document_.count(schema); k++) {
      const std::string_view name = document_.name(document_.child(schema, k));
      if (name != "$ref" && (find_keyword(name) || name.starts_with("unevaluated"))) return atom;
    }
    std::string problem;
    const Value target = schemas_.resolve(schema, document_.text(ref), &problem);
    if (target == kNone) return atom;
    const Atom next = enter(target, scope_of(atom));
    atom = is_negated(atom) ? opposite(next) : next;
  }
  return atom;
}

/// Returns whether two atoms are about equal values, or equal schemas whose references have equal targets.
bool Expander::alike(Atom a, Atom b) const {
  const Value x = schema_of(a), y = schema_of(b);
  return is_value(a) == is_value(b) && scope_of(a) == scope_of(b) && (x == y || (schemas_.share_resource(x, y) && equal(document_, x, y)));
}

Goal Expander::simplify(Goal goal) {
  Goal out;
  for (const Atom given : goal) {
    const Atom atom = simplify(given);
    if (atom == kNever) return {kNever};
    const bool schema = !is_value(atom);
    if (schema && document_.is(schema_of(atom), is_negated(atom) ? Kind::kTrue : Kind::kFalse)) return {kNever};
    if (schema && document_.is(schema_of(atom), is_negated(atom) ? Kind::kFalse : Kind::kTrue)) continue;
    const auto other = std::ranges::find_if(out, [&](Atom known) { return alike(atom, known); });
    if (other == out.end())
      out.push_back(atom);
    else if (is_negated(*other) != is_negated(atom))
      return {kNever};
  }
  return out;
}

PropertyIndex index_properties(const Branch& branch) {
  PropertyIndex index;
  for (std::uint32_t i = 0; i < branch.properties.size(); i++) index.emplace_back(branch.properties[i].name, i);
  std::sort(index.begin(), index.end());
  return index;
}

Goal Expander::property_goal(const Branch& branch, const PropertyIndex& own, std::string_view name) {
  Goal goal;
  const auto add = [&](Atom atom) { goal.push_back(atom); };
  const std::pair<std::string_view, std::uint32_t> wanted(name, 0);
  const auto [first, last] = std::equal_range(own.begin(), own.end(), wanted,
                                              [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto at = first; at != last; ++at) add(branch.properties[at->second].schema);
  for (const Branch::Property& pattern : branch.patterns)
    if (strings_.matches(pattern.name, false, name).value_or(true)) add(pattern.schema);
  for (const Branch::Additional& rest : branch.additional) {
    bool known = std::binary_search(rest.known->names.begin(), rest.known->names.end(), name);
    for (const std::string_view pattern : rest.known->patterns)
      known = known || strings_.matches(pattern, false, name).value_or(false);
    if (!known) add(rest.schema);
  }
  return simplify(std::move(goal));
}

void Expander::apply(Atom atom, Branches& branches) {
  if (atom == kNever) return branches.clear();  // first, since kNever has no schema that a message could name
  if (branches.empty() || problems_.fatal()) return;
  const Value schema = schema_of(atom);
  if (is_value(atom)) return is_negated(atom) ? drop_value(schema, branches) : keep_values({schema}, branches);
  switch (document_.kind(schema)) {
    case Kind::kTrue:
      if (is_negated(atom)) branches.clear();
      return;
    case Kind::kFalse:
      if (!is_negated(atom)) branches.clear();
      return;
    case Kind::kObject: break;
    case Kind::kArray:
      if (document_.name(schema) == "items")
        return problems_.wrong(schema, "a schema is expected; the draft of 2020 names a list of schemas prefixItems "
                                       "(or add \"$schema\": \"http://json-schema.org/draft-07/schema#\")");
      [[fallthrough]];
    default: return problems_.wrong(schema, "a schema is expected: an object, true or false");
  }
  if (std::find(inside_.begin(), inside_.end(), atom) != inside_.end())
    return problems_.wrong(schema, "this schema refers to itself for the same value, so it defines nothing");
  if (inside_.size() == limits_.in_place_depth)
    return problems_.wrong(schema, "schemas that apply to one value are nested too deeply here");
  inside_.push_back(atom);
  const Scope outside = std::exchange(scope_, scope_of(atom));
  if (is_negated(atom))
    apply_negated(schema, branches);
  else
    apply_all(schema, branches);
  scope_ = outside;
  inside_.pop_back();
}

/// In older drafts, all keywords next to $ref are ignored.
bool Expander::counts(Value schema, Value member) const {
  return document_.name(member) == "$ref" || !is_older(schema, Draft::k2019) || document_.find(schema, "$ref") == kNone;
}

void Expander::apply_all(Value schema, Branches& branches) {
  Value last[2] = {kNone, kNone};
  const bool unevaluated = !is_older(schema, Draft::k2019) && (document_.find(schema, "unevaluatedItems") != kNone ||
                                                               document_.find(schema, "unevaluatedProperties") != kNone);
  if (unevaluated)
    for (Branch& branch : branches) branch.mark();
  // first, since alternatives that differ for one type only need not be told apart for others
  const Value types = document_.find(schema, "type");
  if (types != kNone && counts(schema, types)) type(schema, types, branches);
  for (std::uint32_t i = 0; i < document_.count(schema) && !branches.empty(); i++) {
    const Value member = document_.child(schema, i);
    const std::string_view name = document_.name(member);
    if (member == types || !counts(schema, member)) continue;
    const std::size_t before = std::max(branches.size(), kManyBranches);
    if (has_unevaluated(schema, name))
      last[name == "unevaluatedProperties"] = member;
    else if (const Keyword* keyword = keyword_in(schema, name))
      (this->*keyword->positive)(schema, member, branches);
    drop_impossible(before, branches);
  }
  if (last[0] != kNone) unevaluated_items(schema, last[0], branches);
  if (last[1] != kNone) unevaluated_properties(schema, last[1], branches);
  if (unevaluated)
    for (Branch& branch : branches) branch.marks.pop_back();
}

/// Returns a keyword that applies; otherwise kNone.
Value Expander::own(Value schema, std::string_view name) const {
  const Value member = document_.find(schema, name);
  return member != kNone && keyword_in(schema, name) && counts(schema, member) ? member : kNone;
}

/// Returns `const`, or an `enum` that is not long; otherwise kNone.
Value Expander::values_of(Value schema) const {
  if (const Value constant = own(schema, "const"); constant != kNone) return constant;
  const Value list = own(schema, "enum");
  return document_.is(list, Kind::kArray) && document_.count(list) <= kMaxDiscriminatorValues ? list : kNone;
}

/// Returns the first property with few values, which often tells alternatives apart; otherwise kNone.
Value Expander::discriminator(Value schema) const {
  const Value properties = own(schema, "properties");
  for (std::uint32_t i = 0; document_.is(properties, Kind::kObject) && i < document_.count(properties); i++)
    if (const Value property = document_.child(properties, i); values_of(property) != kNone) return property;
  return kNone;
}

/// Returns whether both schemas list their values, and none is common to them.
bool Expander::differ(Value a, Value b) const {
  a = values_of(a), b = values_of(b);
  if (a == kNone || b == kNone) return false;
  const auto count = [&](Value of) { return document_.name(of) == "const" ? 1 : document_.count(of); };
  const auto value = [&](Value of, std::uint32_t i) { return document_.name(of) == "const" ? of : document_.child(of, i); };
  for (std::uint32_t i = 0; i < count(a); i++)
    for (std::uint32_t k = 0; k < count(b); k++)
      if (equal(document_, value(a, i), value(b, k))) return false;
  return true;
}

/// Returns whether certainly no value of the branch satisfies the schema, as far as a short look at types and at
/// properties shows.
bool Expander::violates(const Branch& branch, Value schema) {
  Types common = branch.types;
  if (const Value keyword = own(schema, "type"); keyword != kNone) common &= types(keyword).value_or(kAllTypes);
  if (common != kObject) return common == 0;
  const Value properties = own(schema, "properties"), list = own(schema, "required");
  std::vector<std::string_view> required;
  for (std::uint32_t i = 0; document_.is(list, Kind::kArray) && i < document_.count(list); i++)
    if (const Value name = document_.child(list, i); document_.is(name, Kind::kString)) required.push_back(document_.text(name));
  const auto requires_name = [&](std::string_view name) { return std::find(required.begin(), required.end(), name) != required.end(); };
  return std::any_of(branch.properties.begin(), branch.properties.end(), [&](const Branch::Property& property) {
    if (property.schema == kNever) return requires_name(property.name);
    if (is_value(property.schema)) return false;
    const Value ours = schema_of(property.schema), theirs = document_.find(properties, property.name);
    if (theirs == kNone || (values_of(theirs) == kNone && !is_negated(property.schema))) return false;
    if (!requires_name(property.name) && !branch.requires_name(property.name)) return false;
    return is_negated(property.schema) ? alike(property.schema, holds(theirs)) : differ(ours, theirs);
  });
}

/// Each keyword may be violated. The property that tells alternatives apart comes first; the other ways then meet its
/// schema. So a branch is told apart from most alternatives, instead of being combined with all ways to violate them.
void Expander::apply_negated(Value schema, Branches& branches) {
  const auto others = std::stable_partition(branches.begin(), branches.end(),
                                            [&](const Branch& branch) { return !violates(branch, schema); });
  Branches all(std::make_move_iterator(others), std::make_move_iterator(branches.end()));
  branches.erase(others, branches.end());
  if (branches.empty()) return branches.swap(all);
  const std::size_t before = std::max(all.size() + branches.size(), kManyBranches);
  if (const Value property = discriminator(schema); property != kNone) {
    Branches some = copy(branches);
    const std::string_view name = document_.name(property);
    violate(schema, property, some);
    append(std::move(some), all);
    for (Branch& b : branches) b.properties.push_back({name, holds(property), false});
  }
  for (std::uint32_t i = 0; i < document_.count(schema); i++) {
    const Value member = document_.child(schema, i);
    if (!counts(schema, member)) continue;
    const std::string_view name = document_.name(member);
    const Keyword* keyword = keyword_in(schema, name);
    const bool unevaluated = has_unevaluated(schema, name);
    if (!keyword && !unevaluated) continue;
    Branches some = copy(branches);
    if (unevaluated)
      not_unevaluated(schema, member, some);
    else
      (this->*keyword->negative)(schema, member, some);
    append(std::move(some), all);
  }
  branches = std::move(all);
  drop_impossible(before, branches);
}

/// Returns whether what is being applied counts for unevaluatedItems and unevaluatedProperties.
bool Expander::evaluates() const { return std::none_of(inside_.begin(), inside_.end(), is_negated); }

Expander::Branches Expander::copy(const Branches& branches) {
  copied_ += static_cast<std::uint32_t>(branches.size());
  all_copied_ += static_cast<std::uint32_t>(branches.size());
  if (copied_ > limits_.combinations || all_copied_ > limits_.all_combinations) {
    if (!problems_.fatal())
      problems_.wrong(inside_.empty() ? 0 : schema_of(inside_.back()),
                      "there are too many combinations of the alternatives here");
    return {};
  }
  return branches;
}

void Expander::append(Branches&& from, Branches& to) {
  for (Branch& branch : from) to.push_back(std::move(branch));
}

Types Expander::types_of(const Branches& branches) {
  Types types = 0;
  for (const Branch& branch : branches) types |= branch.types;
  return types;
}

Types Expander::type_of(Value value) const {
  switch (document_.kind(value)) {
    case Kind::kNull: return kNull;
    case Kind::kFalse: return kFalse;
    case Kind::kTrue: return kTrue;
    case Kind::kNumber: return kNumber;
    case Kind::kString: return kString;
    case Kind::kArray: return kArray;
    case Kind::kObject: return kObject;
  }
  return kAllTypes;
}

void Expander::prune(Branches& branches) {
  for (Branch& branch : branches) branch.settle();
  std::erase_if(branches, [](const Branch& branch) { return branch.types == 0; });
}

bool Expander::is_list(Value keyword, std::string_view what) {
  if (document_.is(keyword, Kind::kArray)) return true;
  problems_.wrong(keyword, what);
  return false;
}

bool Expander::is_map(Value keyword) {
  const bool map = document_.is(keyword, Kind::kObject);
  if (map && document_.count(keyword) <= limits_.names) return true;
  problems_.wrong(keyword, map ? "there are too many names" : "an object is expected");
  return false;
}

/// Returns a number that is not negative. Very large numbers are replaced by one that is large enough.
std::optional<std::uint32_t> Expander::count(Value keyword) {
  const std::optional<Decimal> number = this->number(keyword);
  if (!number) return std::nullopt;
  if (number->negative || !number->integral()) {
    problems_.wrong(keyword, "an integer that is not negative is expected");
    return std::nullopt;
  }
  const std::string digits = number->whole();
  if (digits.size() > 9) return 1'000'000'000;
  std::uint32_t value = 0;
  for (const char c : digits) value = value * 10 + static_cast<std::uint32_t>(c - '0');
  return value;
}

std::optional<Decimal> Expander::number(Value keyword) {
  if (!document_.is(keyword, Kind::kNumber)) {
    problems_.wrong(keyword, "a number is expected");
    return std::nullopt;
  }
  std::optional<Decimal> number = Decimal::of(document_.text(keyword), limits_.number_digits);
  if (!number) problems_.wrong(keyword, "this number is too long or too large");
  return number;
}

}  // namespace aici::json_schema
