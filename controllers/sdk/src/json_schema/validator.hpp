// validator.hpp - does a value of the document meet a schema? For enum and const, whose values are in the document.
#pragma once

#include <cstdint>
#include <optional>

#include "aici/json_schema/limits.hpp"
#include "branch.hpp"
#include "read/schemas.hpp"
#include "strings/strings.hpp"

namespace aici::json_schema {

/// Numbers by value, objects without regard to order. Nothing if they are nested too deeply to tell.
bool equal(const Document& document, Value a, Value b);

/// Values, each once, found quickly.
class ValueSet {
 public:
  explicit ValueSet(const Document& document) : document_(document) {}

  bool contains(Value value) const;
  /// False if there is an equal one.
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

  /// Nothing: it cannot be told.
  std::optional<bool> meets(Value value, const Goal& goal);

 private:
  using Kind = Document::Kind;
  /// Like bool, with a third: kUnknown.
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
