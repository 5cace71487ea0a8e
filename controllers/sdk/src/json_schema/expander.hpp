// expander.hpp - expands goals: all ways to satisfy schemas that apply together.
//
// The keywords of a schema narrow a list of branches, one after the other. Keywords with a choice (anyOf, oneOf, if,
// negations) split the list into several. The contents of arrays and objects are not expanded here: they become goals
// of their own, so recursive schemas need no special treatment.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/json_schema/limits.hpp"
#include "branch.hpp"
#include "strings.hpp"

namespace aici::json_schema {

/// Compares numbers by value, and objects without regard to order. Returns nothing if values are nested too deeply.
bool equal(const Document& document, Value a, Value b);

/// A set of values with fast lookup.
class ValueSet {
 public:
  explicit ValueSet(const Document& document) : document_(document) {}

  bool contains(Value value) const;
  /// Returns false if the set has an equal value.
  bool add(Value value);

 private:
  std::uint32_t hash(Value value, std::uint32_t depth) const;

  const Document& document_;
  HashIndex index_;
};

/// Checks a value of the document against a schema: for enum and const, whose values are in the document.
class Validator {
 public:
  Validator(const Schemas& schemas, Strings& strings, const Limits& limits)
      : schemas_(schemas), document_(schemas.document()), strings_(strings), limits_(limits) {}

  /// Returns nothing if it cannot be decided.
  std::optional<bool> meets(Value value, const Goal& goal);

 private:
  using Kind = Document::Kind;
  /// A truth value with a third possibility.
  enum class Answer : std::uint8_t { kNo, kYes, kUnknown };
  static Answer both(Answer a, Answer b);
  static Answer negate(Answer a);
  static Answer of(bool yes) { return yes ? Answer::kYes : Answer::kNo; }

  Answer meets(Value value, Value schema);
  Answer logic(Value value, Value schema, Value keyword, std::string_view name);
  Answer scalar(Value value, Value keyword, std::string_view name, Value schema);
  Answer array(Value value, Value schema, Value keyword, std::string_view name);
  Answer object(Value value, Value schema, Value keyword, std::string_view name);
  Answer additional(Value value, Value schema, Value keyword);
  Answer known_property(Value schema, std::string_view name);
  Answer has_type(Value value, std::string_view type) const;

  const Schemas& schemas_;
  const Document& document_;
  Strings& strings_;
  const Limits& limits_;
  std::uint32_t depth_ = 0;
};

/// All values that satisfy a goal: `values`, and the values that the branches allow. No branch has `values`.
struct Shape {
  std::vector<Value> literals;
  std::vector<Branch> branches;
  /// The parts of the goal that are not enforced.
  std::vector<std::pair<Value, std::string>> problems;

  bool empty() const { return literals.empty() && branches.empty(); }
};

/// The properties of a branch by name: its numbers in Branch::properties.
using PropertyIndex = std::vector<std::pair<std::string_view, std::uint32_t>>;
PropertyIndex index_properties(const Branch& branch);

class Expander {
 public:
  Expander(const Schemas& schemas, Strings& strings, Problems& problems, const Limits& limits)
      : schemas_(schemas),
        document_(schemas.document()),
        strings_(strings),
        problems_(problems),
        limits_(limits),
        scopes_(schemas),
        validator_(schemas, strings, limits) {}

  /// Returns whether a keyword with this name restricts a value, apart from unevaluatedItems and
  /// unevaluatedProperties.
  static bool asserts(std::string_view name) { return find_keyword(name) != nullptr; }
  /// Returns the goal of the whole text.
  Goal whole() { return {holds(0)}; }
  /// Returns a shape, which is computed once and never moves. Adds its problems to those of the schema.
  const Shape& use(const Goal& goal);
  /// Returns the types of values that may satisfy this: a superset if that is hard to decide.
  Types possible(const Goal& goal);
  bool empty(const Goal& goal) { return possible(goal) == 0; }
  /// Returns an equivalent smaller goal: without schemas that always hold or are given twice, and with references
  /// resolved; one that nothing meets is {kNever}, if a schema and its negation show that.
  Goal simplify(Goal goal);
  /// Returns the goal of a property's value in a branch.
  Goal property_goal(const Branch& branch, const PropertyIndex& own, std::string_view name);

  using Branches = std::vector<Branch>;
  /// Returns the ways to satisfy a goal, with those whose contents are impossible.
  Branches branches(const Goal& goal);
  /// Returns the goals of values that every object or every array of a branch has.
  std::vector<Goal> necessary(const Branch& branch, Types type);

 private:
  using Kind = Document::Kind;
  using Rule = void (Expander::*)(Value schema, Value keyword, Branches& branches);
  struct Keyword {
    std::string_view name;
    Rule positive, negative;
    /// The drafts that have the keyword.
    Draft first = Draft::k4, last = Draft::k2020;
  };
  static const Keyword* find_keyword(std::string_view name);
  /// Returns null if the dialect of the schema does not have the keyword.
  const Keyword* keyword_in(Value schema, std::string_view name) const;
  bool has_unevaluated(Value schema, std::string_view name) const;

  // expander.cpp
  const Shape& shape(const Goal& goal);
  void apply(Atom atom, Branches& branches);
  void apply_all(Value schema, Branches& branches);
  void apply_negated(Value schema, Branches& branches);
  bool counts(Value schema, Value member) const;
  Value own(Value schema, std::string_view name) const;
  Value values_of(Value schema) const;
  Value discriminator(Value schema) const;
  bool differ(Value a, Value b) const;
  bool violates(const Branch& branch, Value schema);
  void violate(Value schema, Value property, Branches& branches);
  void finish(const Goal& goal, Branches branches, Shape* shape);
  bool drop_impossible(Branch& branch);
  void drop_impossible(std::size_t most, Branches& branches);
  /// Returns a copy, or nothing with a problem if there are too many combinations.
  Branches copy(const Branches& branches);
  Atom simplify(Atom atom);
  bool alike(Atom a, Atom b) const;
  Atom enter(Value schema, Scope scope);
  /// Returns the atom of a schema that is applied from the one that is being expanded.
  Atom holds(Value schema) { return enter(schema, scope_); }
  static void append(Branches&& from, Branches& to);
  static Types types_of(const Branches& branches);
  Types type_of(Value value) const;
  static void prune(Branches& branches);
  template <class Change>
  static void each(Branches& branches, Change change) {
    for (Branch& branch : branches) change(branch);
    prune(branches);
  }
  static void problem(Branches& branches, Types types, Value where, const char* reason) {
    for (Branch& branch : branches) branch.problems.push_back({types, where, reason});
  }
  bool is_list(Value keyword, std::string_view what);
  bool is_map(Value keyword);
  std::optional<std::uint32_t> count(Value keyword);
  std::optional<Decimal> number(Value keyword);
  bool is_older(Value schema, Draft than) const { return schemas_.draft(schema) < than; }
  bool evaluates() const;

  // keywords.cpp: combinations of schemas
  void ref(Value schema, Value keyword, Branches& branches);
  void not_ref(Value schema, Value keyword, Branches& branches);
  void dynamic_ref(Value schema, Value keyword, Branches& branches);
  void not_dynamic_ref(Value schema, Value keyword, Branches& branches);
  void follow(Value schema, Value keyword, bool dynamic, bool negated, Branches& branches);
  void all_of(Value schema, Value keyword, Branches& branches);
  void not_all_of(Value schema, Value keyword, Branches& branches);
  void any_of(Value schema, Value keyword, Branches& branches);
  void not_any_of(Value schema, Value keyword, Branches& branches);
  void one_of(Value schema, Value keyword, Branches& branches);
  void not_one_of(Value schema, Value keyword, Branches& branches);
  void negation(Value schema, Value keyword, Branches& branches);
  void not_negation(Value schema, Value keyword, Branches& branches);
  void condition(Value schema, Value keyword, Branches& branches);
  void not_condition(Value schema, Value keyword, Branches& branches);
  bool disjoint(Value a, Value b, const Branches& within, const std::vector<std::string_view>& required);
  std::vector<std::string_view> own_required(Value schema) const;

  // keywords.cpp: types, values, numbers, strings
  void type(Value schema, Value keyword, Branches& branches);
  void not_type(Value schema, Value keyword, Branches& branches);
  std::optional<Types> types(Value keyword);
  void enumeration(Value schema, Value keyword, Branches& branches);
  void not_enumeration(Value schema, Value keyword, Branches& branches);
  void constant(Value schema, Value keyword, Branches& branches);
  void not_constant(Value schema, Value keyword, Branches& branches);
  void keep_values(const std::vector<Value>& values, Branches& branches);
  void drop_value(Value value, Branches& branches);
  void drop_unmatched(Branch& branch);
  void minimum(Value schema, Value keyword, Branches& branches);
  void not_minimum(Value schema, Value keyword, Branches& branches);
  void maximum(Value schema, Value keyword, Branches& branches);
  void not_maximum(Value schema, Value keyword, Branches& branches);
  void exclusive_minimum(Value schema, Value keyword, Branches& branches);
  void not_exclusive_minimum(Value schema, Value keyword, Branches& branches);
  void exclusive_maximum(Value schema, Value keyword, Branches& branches);
  void not_exclusive_maximum(Value schema, Value keyword, Branches& branches);
  void low(Value keyword, bool open, Branches& branches);
  void high(Value keyword, bool open, Branches& branches);
  void multiple_of(Value schema, Value keyword, Branches& branches);
  void not_multiple_of(Value schema, Value keyword, Branches& branches);
  void min_length(Value schema, Value keyword, Branches& branches);
  void not_min_length(Value schema, Value keyword, Branches& branches);
  void max_length(Value schema, Value keyword, Branches& branches);
  void not_max_length(Value schema, Value keyword, Branches& branches);
  void pattern(Value schema, Value keyword, Branches& branches);
  void not_pattern(Value schema, Value keyword, Branches& branches);
  void format(Value schema, Value keyword, Branches& branches);
  void not_format(Value schema, Value keyword, Branches& branches);
  void content(Value schema, Value keyword, Branches& branches);
  void not_content(Value schema, Value keyword, Branches& branches);
  void add_text(Value keyword, bool format, bool negated, Branches& branches);

  // keywords_contents.cpp: arrays
  void items(Value schema, Value keyword, Branches& branches);
  void not_items(Value schema, Value keyword, Branches& branches);
  void prefix_items(Value schema, Value keyword, Branches& branches);
  void not_prefix_items(Value schema, Value keyword, Branches& branches);
  void additional_items(Value schema, Value keyword, Branches& branches);
  void not_additional_items(Value schema, Value keyword, Branches& branches);
  std::uint32_t prefix_size(Value schema) const;
  void rest_of_items(std::uint32_t from, Value keyword, bool negated, Branches& branches);
  void contains(Value schema, Value keyword, Branches& branches);
  void not_contains(Value schema, Value keyword, Branches& branches);
  void min_items(Value schema, Value keyword, Branches& branches);
  void not_min_items(Value schema, Value keyword, Branches& branches);
  void max_items(Value schema, Value keyword, Branches& branches);
  void not_max_items(Value schema, Value keyword, Branches& branches);
  void unique_items(Value schema, Value keyword, Branches& branches);
  void not_unique_items(Value schema, Value keyword, Branches& branches);
  void unevaluated_items(Value schema, Value keyword, Branches& branches);

  // keywords_contents.cpp: objects
  void properties(Value schema, Value keyword, Branches& branches);
  void not_properties(Value schema, Value keyword, Branches& branches);
  void required(Value schema, Value keyword, Branches& branches);
  void not_required(Value schema, Value keyword, Branches& branches);
  void pattern_properties(Value schema, Value keyword, Branches& branches);
  void additional_properties(Value schema, Value keyword, Branches& branches);
  void property_names(Value schema, Value keyword, Branches& branches);
  void not_pattern_properties(Value schema, Value keyword, Branches& branches);
  void not_additional_properties(Value schema, Value keyword, Branches& branches);
  void not_property_names(Value schema, Value keyword, Branches& branches);
  void some_property(Branch::Some some, Branches& branches);
  std::shared_ptr<const KeySet> described(Value schema) const;
  std::string_view common_property(Value keyword) const;
  void min_properties(Value schema, Value keyword, Branches& branches);
  void not_min_properties(Value schema, Value keyword, Branches& branches);
  void max_properties(Value schema, Value keyword, Branches& branches);
  void not_max_properties(Value schema, Value keyword, Branches& branches);
  void dependent(Value schema, Value keyword, Branches& branches);
  void not_dependent(Value schema, Value keyword, Branches& branches);
  void unevaluated_properties(Value schema, Value keyword, Branches& branches);
  void not_unevaluated(Value schema, Value keyword, Branches& branches);
  void require_names(Value list, Branches& branches);

  const Schemas& schemas_;
  const Document& document_;
  Strings& strings_;
  Problems& problems_;
  const Limits& limits_;
  Scopes scopes_;
  Validator validator_;

  std::map<Goal, std::unique_ptr<Shape>> shapes_;
  /// For pairs of alternatives: the types of values that may satisfy both.
  std::map<std::pair<Atom, Atom>, Types> shared_;
  /// The schemas that are being applied to one value, from the outermost to the innermost.
  std::vector<Atom> inside_;
  /// The scope of the schema that is being applied.
  Scope scope_ = 0;
  std::uint32_t copied_ = 0, all_copied_ = 0;
  /// The current depth at which goals are examined for emptiness.
  std::uint32_t looking_ = 0;
};

}  // namespace aici::json_schema
