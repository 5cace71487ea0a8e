// document.hpp - a JSON text as a tree. Numbers keep their spelling, strings are UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/hash_index.hpp"
#include "aici/json_schema/limits.hpp"

namespace aici::json_schema {

/// The number of a value in its document, in the order of the text: the whole is 0.
using Value = std::uint32_t;
inline constexpr Value kNone = 0xffffffff;

class Document {
 public:
  enum class Kind : std::uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

  /// False, and `error` with line, column and cause, if this is no JSON, has a name twice in an object, or is beyond
  /// a limit.
  bool parse(std::string_view text, const Limits& limits, std::string* error);

  std::size_t size() const { return nodes_.size(); }
  Kind kind(Value value) const { return nodes_[value].kind; }
  bool is(Value value, Kind kind) const { return value != kNone && nodes_[value].kind == kind; }
  /// A number as it is spelled; a string without quotes and escapes.
  std::string_view text(Value value) const { return slice(nodes_[value].begin, nodes_[value].count); }
  /// Of an array or an object: how many it has, and each.
  std::uint32_t count(Value value) const { return nodes_[value].count; }
  Value child(Value value, std::uint32_t i) const { return children_[nodes_[value].begin + i]; }
  /// The name of a member of an object.
  std::string_view name(Value member) const { return slice(nodes_[member].name, nodes_[member].name_size); }
  /// The same as a value, a string.
  Value name_value(Value member) const { return member - 1; }
  /// The member of this name, or kNone; also if `value` is kNone or no object.
  Value find(Value value, std::string_view name) const;
  /// The array or object that a value is in; kNone for the whole.
  Value parent(Value value) const { return nodes_[value].parent; }
  /// Which child of its parent it is.
  std::uint32_t position(Value value) const { return nodes_[value].position; }
  /// The value's own text in the whole.
  std::string_view source(Value value, std::string_view whole) const {
    return whole.substr(nodes_[value].from, nodes_[value].to - nodes_[value].from);
  }
  /// The JSON pointer: `/properties/a~1b`; empty for the whole.
  std::string pointer(Value value) const;
  /// Where a JSON pointer, without escapes of URLs, leads from `from`; kNone if nowhere.
  Value at(Value from, std::string_view pointer) const;

 private:
  friend class DocumentParser;
  struct Node {
    Kind kind;
    Value parent;
    std::uint32_t position = 0;
    std::uint32_t begin = 0, count = 0;
    std::uint32_t name = 0, name_size = 0;
    std::uint32_t from = 0, to = 0;
  };
  std::string_view slice(std::uint32_t begin, std::uint32_t size) const {
    return std::string_view(pool_).substr(begin, size);
  }

  std::vector<Node> nodes_;
  std::vector<Value> children_;
  std::string pool_;
  HashIndex members_;
};

/// The text as a JSON string with its quotes, in the one spelling that is used throughout: what JSON does not let stand
/// as it is becomes \" \\ \b \f \n \r \t, or \u00 and two small hexadecimal digits.
void append_json_string(std::string_view text, std::string* out);

}  // namespace aici::json_schema
