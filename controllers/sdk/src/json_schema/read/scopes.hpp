// scopes.hpp - dynamic scopes: which anchors `$dynamicRef` and `$recursiveRef` mean on a path through schemas.
//
// A name that several resources define dynamically means the anchor in the outermost of them that the path has entered.
// So a schema with such references is several schemas, one for each scope in which it applies.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "aici/json_schema/document.hpp"
#include "schemas.hpp"

namespace aici::json_schema {

/// The number of a scope; 0 is the one outside of all resources, and the only one if no name is ambiguous.
using Scope = std::uint32_t;

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
