// schemas.hpp - the schemas of a document: their dialects, their names, and where references lead.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/json_schema/document.hpp"

namespace aici::json_schema {

/// In the order of time.
enum class Draft : std::uint8_t { k4, k6, k7, k2019, k2020 };

class Schemas {
 public:
  explicit Schemas(const Document& document);

  const Document& document() const { return document_; }
  /// The dialect of a schema.
  Draft draft(Value schema) const { return resources_[resource(schema)].draft; }
  /// Where `$ref` in this schema leads; kNone, and `problem`, if it leads nowhere.
  Value resolve(Value schema, std::string_view reference, std::string* problem) const;
  /// The same for `$dynamicRef` and `$recursiveRef`, where all ways to get there lead to one place.
  Value resolve_dynamic(Value schema, std::string_view reference, std::string* problem) const;

  /// Calls `visit(Value)` for each schema that is directly in this one.
  template <class Visit>
  void each_child(Value schema, Visit visit) const;

 private:
  using Kind = Document::Kind;
  struct Resource {
    Value root;
    std::string uri;
    Draft draft;
  };
  /// How the member of a schema holds other schemas.
  enum class Holds : std::uint8_t { kNothing, kOne, kList, kMembers };
  static Holds holds(std::string_view keyword);

  std::uint32_t resource(Value value) const;
  void enter(Value schema);
  Value find_anchor(std::uint32_t resource, std::string_view name) const;

  const Document& document_;
  std::vector<Resource> resources_;
  /// Per value: the number of the resource whose root it is, or kNone.
  std::vector<std::uint32_t> root_of_;
  std::map<std::string, std::uint32_t, std::less<>> by_uri_;
  std::map<std::pair<std::uint32_t, std::string>, Value> anchors_, dynamic_;
  bool recursive_anchors_ = false;
};

}  // namespace aici::json_schema
