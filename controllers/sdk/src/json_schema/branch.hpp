// branch.hpp - one way to satisfy schemas: the constraints on a value, for each JSON type; and problems of a schema.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/json_schema/document.hpp"
#include "aici/json_schema/schema.hpp"
#include "numbers.hpp"
#include "schemas.hpp"

namespace aici::json_schema {

/// A schema that must hold or, if negated, must not hold, with the dynamic scope in which it applies (schemas.hpp):
/// the schema's value times two, plus one if negated; the scope is in the upper half. With kIsValue, it is not a schema
/// that must hold but a value that must be equal.
using Atom = std::uint64_t;
inline constexpr Atom kNever = 0xffffffff, kIsValue = 0x80000000;
inline Atom holds(Value schema, Scope scope) { return Atom{scope} << 32 | Atom{schema} << 1; }
inline Atom equals(Value value) { return kIsValue | Atom{value} << 1; }
inline Atom opposite(Atom atom) { return atom ^ 1; }
inline bool is_value(Atom atom) { return atom & kIsValue; }
/// Returns the schema, or the value that must be equal.
inline Value schema_of(Atom atom) { return static_cast<Value>(atom & (kIsValue - 1)) >> 1; }
inline Scope scope_of(Atom atom) { return static_cast<Scope>(atom >> 32); }
inline bool is_negated(Atom atom) { return atom & 1; }

/// Schemas that apply to one value together, in the order in which they were found.
using Goal = std::vector<Atom>;

/// Sets of types. Integers and other numbers are separate types, and so are true and false.
using Types = std::uint8_t;
inline constexpr Types kNull = 1, kFalse = 2, kTrue = 4, kInteger = 8, kFraction = 16, kString = 32, kArray = 64,
                       kObject = 128, kNumber = kInteger | kFraction, kAllTypes = 255;

/// Names of properties that a schema describes: all of `names` (sorted), and those that match one of `patterns`.
struct KeySet {
  std::vector<std::string_view> names, patterns;
};

struct Branch {
  static constexpr std::uint32_t kNoLimit = 0xffffffff;

  Types types = kAllTypes;
  /// If set, the value is one of these.
  std::optional<std::vector<Value>> values;

  Range range;
  std::vector<Decimal> multiples, not_multiples, not_numbers;
  /// The positions of the last keywords about numbers and about lengths, for messages.
  Value numbers_at = 0, lengths_at = 0;

  struct Text {
    std::string_view text;  ///< a pattern, or the name of a format
    Value where;
    bool format, negated;
  };
  std::uint32_t min_length = 0, max_length = kNoLimit;
  std::vector<Text> texts;
  std::vector<std::string_view> not_strings;

  /// The items from number `first` up to `end`.
  struct Items {
    std::uint32_t first, end;
    Atom schema;
    bool evaluates;  ///< counts for unevaluatedItems
    /// Items that meet one of these of `contains`, if that counts for unevaluatedItems, need not satisfy the schema.
    std::uint32_t first_excuse = 0, end_excuses = 0;
  };
  /// The number of items, from number `first` on, that must satisfy a schema.
  struct Contains {
    std::uint32_t first;
    Atom schema;
    std::uint32_t min, max;
    Value where;
    bool evaluates = false;  ///< counts for unevaluatedItems
  };
  std::uint32_t min_items = 0, max_items = kNoLimit;
  std::vector<Items> items;
  std::vector<Contains> contains;
  Value unique = kNone;  ///< the position of the keyword

  /// A property, or properties that match a pattern.
  struct Property {
    std::string_view name;
    Atom schema;
    bool evaluates;  ///< counts for unevaluatedProperties
  };
  struct Additional {
    std::shared_ptr<const KeySet> known;
    Atom schema;
    bool evaluates;
  };
  std::uint32_t min_properties = 0, max_properties = kNoLimit;
  Value min_properties_at = kNone;
  std::vector<Property> properties, patterns;
  std::vector<Additional> additional;
  std::vector<Atom> names;
  std::vector<std::string_view> required;
  /// At least one property must have such a name and such a value: a name that is not in `outside` if that is set,
  /// that matches `pattern` if that is set, and that satisfies `names`.
  struct Some {
    std::shared_ptr<const KeySet> outside;
    std::optional<std::string_view> pattern;
    Goal names, values;
    Value where;
  };
  std::vector<Some> some;

  /// Constraints that cannot be enforced; they matter if one of `types` is possible.
  struct Problem {
    Types types;
    Value where;
    const char* reason;
  };
  std::vector<Problem> problems;

  /// For each schema with unevaluatedItems or unevaluatedProperties that is being applied: the sizes before it.
  struct Mark {
    std::size_t items, contains, properties, patterns, additional;
  };
  std::vector<Mark> marks;
  void mark() { marks.push_back({items.size(), contains.size(), properties.size(), patterns.size(), additional.size()}); }

  /// Sets a lower or an upper bound for numbers; if it is open, the bound itself is excluded.
  void raise(const Decimal& low, bool open);
  void lower(const Decimal& high, bool open);
  /// Removes types without a possible value.
  void settle();
  void require(std::string_view name);
  bool requires_name(std::string_view name) const;
  /// Returns whether an item at this position that meets `met` of `contains`, a set of numbers, must satisfy `items`.
  bool applies(const Items& items, std::uint32_t position, std::uint32_t met) const;
  /// Returns the goal of an item at this position that meets `met` of `contains`.
  Goal item_goal(std::uint32_t position, std::uint32_t met = 0) const;
};

/// Errors in a schema, constraints that cannot be enforced, and their positions.
class Problems {
 public:
  explicit Problems(const Document& document) : document_(document) {}

  using Severity = Problem::Severity;

  /// A part of the schema that is ignored, as JSON Schema says.
  void remark(Value where, std::string_view reason) { add(where, reason, Severity::kRemark); }
  /// A problem that would not occur with a looser schema.
  void unsupported(Value where, std::string_view reason) {
    count_++;
    add(where, reason, Severity::kUnsupported);
  }
  /// The schema is invalid, or beyond a limit.
  void wrong(Value where, std::string_view reason) {
    count_++;
    add(where, reason, Severity::kFatal);
    fatal_ = true;
  }
  bool fatal() const { return fatal_; }
  bool any() const { return count_ > 0; }
  /// Number of problems added so far, including repeated ones, without remarks.
  std::size_t count() const { return count_; }
  std::vector<Problem> take() { return std::move(found_); }

 private:
  void add(Value where, std::string_view reason, Severity severity) {
    if (known_.insert({where, std::string(reason)}).second)
      found_.push_back({document_.uri(where), document_.pointer(where), std::string(reason), severity});
  }

  const Document& document_;
  std::vector<Problem> found_;
  std::set<std::pair<Value, std::string>> known_;
  bool fatal_ = false;
  std::size_t count_ = 0;
};

}  // namespace aici::json_schema
