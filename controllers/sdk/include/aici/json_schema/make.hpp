// make.hpp - makes a recognizer of the JSON texts that a schema allows. docs/json_schema.md describes them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "aici/cfg/parser.hpp"
#include "aici/json_schema/schema.hpp"

namespace aici::json_schema {

/// Returns the whitespace with this name in arguments: "flexible", "compact" or "spaced".
std::optional<Whitespace> whitespace_named(std::string_view name);

/// Computes masks along a text of a schema, and keeps what the first later schema may need: automata, and masks within
/// strings, numbers and punctuation. Call it while the module is initialized: the host does that once for many schemas.
void prepare(std::string_view schema, std::string_view text);

/// Makes a recognizer from a schema; for controllers' constructors. An invalid schema refuses the request with a
/// message that gives position and reason. Otherwise adds the parts that are not enforced to `not_enforced`.
cfg::Parser make_or_fail(std::string_view schema, const Options& options, std::vector<Problem>* not_enforced);
/// As above, for a schema that has been parsed.
cfg::Parser make_or_fail(const Document& schema, const Options& options, std::vector<Problem>* not_enforced);

}  // namespace aici::json_schema
