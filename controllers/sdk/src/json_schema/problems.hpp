// problems.hpp - errors in a schema, constraints that cannot be enforced, and their positions.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "aici/json_schema/schema.hpp"

namespace aici::json_schema {

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
