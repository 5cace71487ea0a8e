// schema.hpp - adds a JSON schema to a grammar.
//
//   cfg::Grammar grammar;
//   std::vector<json_schema::Problem> problems;
//   const cfg::Expr answer = json_schema::add_schema(grammar, text, {}, &problems);
//
// The expression stands for the JSON texts that the schema allows, in the spelling that docs/json_schema.md describes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/json_schema/document.hpp"
#include "aici/json_schema/limits.hpp"

namespace aici::json_schema {

enum class Whitespace : std::uint8_t {
  kFlexible,  ///< between two punctuation marks: nothing, a blank, or a newline with indentation
  kCompact,   ///< none: {"a":1,"b":[2,3]}
  kSpaced,    ///< as Python writes it: {"a": 1, "b": [2, 3]}
};

/// The order in which the properties of an object are written.
enum class Order : std::uint8_t {
  kSchema,  ///< that of the schema; where other names are allowed, optional properties may also come late
  kAny,     ///< any order, except in objects some property of which must violate a schema
};

struct Options {
  Whitespace whitespace = Whitespace::kFlexible;
  Order order = Order::kSchema;
  /// Ignores parts that cannot be enforced, instead of refusing the schema. The output may then violate the schema.
  bool warn = false;
  /// Refuses formats that are not known, instead of ignoring them as JSON Schema says.
  bool refuse_unknown_formats = false;
  /// All values are strings, written without quotes and escapes.
  bool plain = false;
  Limits limits;
};

struct Problem {
  std::string document;  ///< URI of the document; empty for the schema itself
  std::string pointer;   ///< JSON pointer into the document
  std::string reason;
  enum class Severity : std::uint8_t {
    kRemark,       ///< the schema is accepted, and this part of it is ignored
    kUnsupported,  ///< refused without Options::warn
    kFatal,        ///< refused in any case
  };
  Severity severity = Severity::kUnsupported;

  /// `#/properties/a: reason`
  std::string text() const { return document + "#" + pointer + ": " + reason; }
};

/// Returns the texts of a schema; the grammar's `never()` if the schema is refused. Stores in `problems` the reasons
/// or, if it is accepted, the parts that are not enforced.
cfg::Expr add_schema(cfg::Grammar& grammar, std::string_view schema, const Options& options,
                     std::vector<Problem>* problems);
/// As above, for a schema that has been parsed, possibly with documents to which it refers.
cfg::Expr add_schema(cfg::Grammar& grammar, const Document& schema, const Options& options,
                     std::vector<Problem>* problems);

/// Returns whether JSON Schema has a keyword of this name, in any draft.
bool is_keyword(std::string_view name);

}  // namespace aici::json_schema
