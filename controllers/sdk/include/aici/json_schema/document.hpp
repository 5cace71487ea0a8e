// document.hpp - a JSON text as a tree. Numbers keep their spelling, strings are UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/json_schema/limits.hpp"

namespace aici::json_schema {

/// The number of a value in its document, in the order of the text. The root is 0.
using Value = std::uint32_t;
inline constexpr Value kNone = 0xffffffff;

class Document {
 public:
  enum class Kind : std::uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

  /// Parses a text. Returns false, with line, column and reason in `error`, if it is not JSON, has a duplicate name
  /// in an object, or exceeds a limit.
  bool parse(std::string_view text, const Limits& limits, std::string* error);

  /// Adds another document, to which schemas refer by `uri`. Its values follow those before. Returns false as `parse`.
  bool append(std::string_view uri, std::string_view text, const Limits& limits, std::string* error);
  /// Returns the roots: that of the text, then those of further documents.
  const std::vector<Value>& roots() const { return roots_; }
  /// Returns the URI of the document that contains a value; empty for the first one.
  const std::string& uri(Value value) const;

  std::size_t size() const { return nodes_.size(); }
  Kind kind(Value value) const { return nodes_[value].kind; }
  bool is(Value value, Kind kind) const { return value != kNone && nodes_[value].kind == kind; }
  /// Returns a number as it is spelled, or a string without quotes and escapes.
  std::string_view text(Value value) const { return slice(nodes_[value].begin, nodes_[value].count); }
  /// Return the number of members of an array or object, and each member.
  std::uint32_t count(Value value) const { return nodes_[value].count; }
  Value child(Value value, std::uint32_t i) const { return children_[nodes_[value].begin + i]; }
  /// Returns the name of a member of an object.
  std::string_view name(Value member) const { return slice(nodes_[member].name, nodes_[member].name_size); }
  /// Returns the name of a member as a string value.
  Value name_value(Value member) const { return member - 1; }
  /// Returns the member with this name, or kNone; also if `value` is kNone or not an object.
  Value find(Value value, std::string_view name) const;
  /// Returns the array or object that contains a value; kNone for a root.
  Value parent(Value value) const { return nodes_[value].parent; }
  /// Returns the index of a value in its parent.
  std::uint32_t position(Value value) const { return nodes_[value].position; }
  /// Returns the value's part of the whole text.
  std::string_view source(Value value, std::string_view whole) const {
    return whole.substr(nodes_[value].from, nodes_[value].to - nodes_[value].from);
  }
  /// Returns the JSON pointer, such as `/properties/a~1b`; empty for the root.
  std::string pointer(Value value) const;
  /// Resolves a JSON pointer, without URL escapes, from `from`; returns kNone if it leads nowhere.
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
  std::vector<Value> children_, roots_;
  std::vector<std::string> uris_;
  std::string pool_;
  HashIndex members_;
};

/// Appends the text as a JSON string with quotes, in the canonical spelling: characters that JSON requires to be
/// escaped become \" \\ \b \f \n \r \t, or \u00 and two lowercase hexadecimal digits.
void append_json_string(std::string_view text, std::string* out);

}  // namespace aici::json_schema
