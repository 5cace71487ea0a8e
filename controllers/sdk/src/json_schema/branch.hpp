// branch.hpp - what the parts of a schema are read into: exact numbers and bounds, the schemas of a document with their
// names and references, and branches: ways to satisfy schemas, each with the constraints on a value of each JSON type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/json_schema/document.hpp"
#include "aici/json_schema/schema.hpp"

namespace aici::json_schema {

/// digits * 10^exponent. Zero has no digits; other numbers neither begin nor end with 0.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int32_t exponent = 0;

  /// Parses a number in the spelling of JSON; nothing if it has more than `most` digits when written out.
  static std::optional<Decimal> of(std::string_view text, std::uint32_t most);
  static Decimal of(std::uint64_t number);

  bool zero() const { return digits.empty(); }
  bool integral() const { return exponent >= 0; }
  /// Return the digits before the point (at least "0") and after it, without sign and exponent.
  std::string whole() const;
  std::string fraction() const;
  /// Returns a text such as `-12.5`.
  std::string plain() const;
  Decimal negated() const;
  /// Return the nearest integer that is not above, or not below, the number; and the sum of an integer and `one`.
  Decimal floor() const;
  Decimal ceiling() const { return negated().floor().negated(); }
  Decimal plus(int one) const;

  bool operator==(const Decimal&) const = default;
};

/// Returns -1, 0 or 1.
int compare(const Decimal& a, const Decimal& b);
/// Returns whether a / b is an integer; b is above 0.
bool is_multiple(const Decimal& a, const Decimal& b);

/// The numbers between two bounds; without one, there is no limit.
struct Range {
  std::optional<Decimal> low, high;
  bool low_open = false, high_open = false;

  bool bounded() const { return low || high; }
  bool empty() const;
  bool contains(const Decimal& number) const;
};

/// Returns a pattern for integers, without a fraction. Both signs of zero are zero. If a bound has more than 64 digits,
/// and the other one does not exclude all shorter numbers, numbers have at most 64 digits before the point.
std::string integer_pattern(const Range& range);
/// Returns a pattern for all numbers. Without bounds, or with the only bound of 0 or more, in any spelling of JSON;
/// otherwise only zero has exponents, and long bounds are those of integer_pattern. Next to an open bound it allows at most 15 digits, so that no reader rounds to
/// the bound.
std::string number_pattern(const Range& range);
/// Returns a pattern for numbers that are not integers.
std::string fraction_pattern();

/// Returns a pattern for multiples of `divisor` (above 0), in any range; nothing if there is none of moderate size.
std::optional<std::string> multiple_pattern(const Decimal& divisor, bool integers);

/// Returns the integer whose multiples are the integer multiples of `divisor`; 0 if it is too large.
std::uint64_t whole_divisor(const Decimal& divisor);

/// Returns a pattern for the texts that match all patterns.
std::string both_patterns(const std::vector<std::string>& patterns);

/// In chronological order.
enum class Draft : std::uint8_t { k4, k6, k7, k2019, k2020 };

class Schemas {
 public:
  explicit Schemas(const Document& document);

  const Document& document() const { return document_; }
  /// Returns the dialect of a schema. Where no `$schema` states one, a list of schemas in `items` is of 2019 or older.
  Draft draft(Value schema) const {
    return !lists_.empty() && lists_.contains(schema) ? Draft::k2019 : resources_[resource(schema)].draft;
  }
  /// Returns whether equal references in both schemas have the same target.
  bool share_resource(Value a, Value b) const { return resource(a) == resource(b); }
  /// Returns the target of a `$ref` in this schema. If there is none, returns kNone and sets `problem`.
  Value resolve(Value schema, std::string_view reference, std::string* problem) const;
  /// The same for `$dynamicRef` and `$recursiveRef`. If the target depends on the path, sets `name` to the number of the
  /// ambiguous name, and returns the target where the path has entered no resource that defines it.
  Value resolve_dynamic(Value schema, std::string_view reference, std::uint32_t* name, std::string* problem) const;
  /// Names that several resources define dynamically have numbers below this one.
  std::uint32_t num_ambiguous() const { return num_ambiguous_; }
  /// Returns those that the resource of a schema defines, by number, with their anchors.
  const std::vector<std::pair<std::uint32_t, Value>>& ambiguous_anchors(Value schema) const {
    return resources_[resource(schema)].ambiguous;
  }

  /// Calls `visit(Value)` for each schema directly inside this one.
  template <class Visit>
  void each_child(Value schema, Visit visit) const;

 private:
  using Kind = Document::Kind;
  struct Resource {
    Value root;
    std::string uri;
    Draft draft;
    bool stated;  ///< whether `$schema` states the draft, here or around the resource
    std::vector<std::pair<std::uint32_t, Value>> ambiguous = {};
  };
  /// How a member of a schema contains other schemas.
  enum class Holds : std::uint8_t { kNothing, kOne, kList, kMembers };
  static Holds holds(std::string_view keyword);

  std::uint32_t resource(Value value) const;
  void enter(Value schema);
  Draft draft_named(std::string_view dialect, Draft otherwise) const;
  std::uint32_t find_resource(const std::string& uri, Value from) const;
  Value find_anchor(std::uint32_t resource, std::string_view name) const;
  void find_ambiguous();

  const Document& document_;
  std::vector<Resource> resources_;
  /// For each value: the number of the resource whose root it is, or kNone.
  std::vector<std::uint32_t> root_of_;
  /// Schemas with a list in `items` where no draft is stated.
  std::set<Value> lists_;
  std::map<std::string, std::vector<std::uint32_t>, std::less<>> by_uri_;
  /// By resource and name; the dynamic anchor of `$recursiveAnchor` has no name.
  std::map<std::pair<std::uint32_t, std::string>, Value> anchors_, dynamic_;
  /// Maximum number of ambiguous names; references to others are refused.
  static constexpr std::uint32_t kMaxAmbiguous = 64;
  std::map<std::string, std::uint32_t, std::less<>> ambiguous_;
  std::uint32_t num_ambiguous_ = 0;
};

/// The number of a scope; 0 is the one outside of all resources, and the only one if no name is ambiguous.
using Scope = std::uint32_t;

/// Dynamic scopes: which anchors `$dynamicRef` and `$recursiveRef` mean on a path through schemas.
///
/// A name that several resources define dynamically means the anchor in the outermost of them that the path has
/// entered. So a schema with such references is several schemas, one for each scope in which it applies.
class Scopes {
 public:
  explicit Scopes(const Schemas& schemas) : schemas_(schemas), scopes_(1, Targets(schemas.num_ambiguous(), kNone)) {
    numbers_[scopes_[0]] = 0;
  }

  /// Returns the scope in a schema that is applied from another scope.
  Scope enter(Scope scope, Value schema);
  /// Returns the target of a `$dynamicRef` or `$recursiveRef` in this schema. If there is none, returns kNone and sets
  /// `problem`.
  Value resolve(Scope scope, Value schema, std::string_view reference, std::string* problem) const;
  /// Returns whether more scopes were needed than are allowed; answers since then may be wrong.
  bool overflow() const { return overflow_; }

 private:
  /// Each takes up to Schemas::kMaxAmbiguous values.
  static constexpr std::size_t kMax = 4096;
  /// The anchors by number of the name, kNone for those that no resource so far defines.
  using Targets = std::vector<Value>;

  const Schemas& schemas_;
  std::vector<Targets> scopes_;
  std::map<Targets, Scope> numbers_;
  bool overflow_ = false;
};

/// A schema that must hold or, if negated, must not hold, with the dynamic scope in which it applies (Schemas):
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
