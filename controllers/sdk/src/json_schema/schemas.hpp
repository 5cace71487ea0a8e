// schemas.hpp - the schemas of a document: their dialects and names, the targets of references, and dynamic scopes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/json_schema/document.hpp"

namespace aici::json_schema {

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

}  // namespace aici::json_schema
