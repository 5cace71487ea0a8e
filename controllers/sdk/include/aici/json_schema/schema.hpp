// schema.hpp - JSON Schema as part of a grammar.
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
  kFlexible,  ///< between two marks: nothing, a blank, or a new line with an indentation
  kCompact,   ///< none: {"a":1,"b":[2,3]}
  kSpaced,    ///< as Python writes it: {"a": 1, "b": [2, 3]}
};

struct Options {
  Whitespace whitespace = Whitespace::kFlexible;
  /// What cannot be enforced is left out, not refused. Texts that the schema forbids may come then.
  bool warn = false;
  /// All values are strings, and stand there as they are: without quotes and escapes.
  bool plain = false;
  Limits limits;
};

struct Problem {
  std::string pointer;  ///< JSON pointer into the schema
  std::string reason;
  /// Does it refuse the schema, whatever Options::warn says?
  bool fatal = false;

  /// `#/properties/a: reason`
  std::string text() const { return "#" + pointer + ": " + reason; }
};

/// The texts of a schema; `never()` of the grammar if it is refused. `problems` says why, or, with Options::warn, what
/// has been left out.
cfg::Expr add_schema(cfg::Grammar& grammar, std::string_view schema, const Options& options,
                     std::vector<Problem>* problems);
/// The same of one that has been read.
cfg::Expr add_schema(cfg::Grammar& grammar, const Document& schema, const Options& options,
                     std::vector<Problem>* problems);

}  // namespace aici::json_schema
