// validator.hpp - checks a value of the document against a schema. For enum and const, whose values are in the
// document.
#pragma once

#include <cstdint>
#include <optional>

#include "aici/json_schema/limits.hpp"
#include "branch.hpp"
#include "read/schemas.hpp"
#include "strings/strings.hpp"

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

}  // namespace aici::json_schema
