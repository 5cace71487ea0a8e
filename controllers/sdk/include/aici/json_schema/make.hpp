// make.hpp - the JSON texts that a schema allows, as a recognizer. docs/json_schema.md describes them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "aici/cfg/parser.hpp"
#include "aici/json_schema/schema.hpp"

namespace aici::json_schema {

/// By the name that arguments have for it: "flexible", "compact" or "spaced".
std::optional<Whitespace> whitespace_named(std::string_view name);

/// For constructors of controllers: a schema that is refused refuses the request, with a message that says where and
/// why. What is not enforced, with Options::warn, is added to `not_enforced`.
cfg::Parser make_or_fail(std::string_view schema, const Options& options, std::vector<Problem>* not_enforced);
/// The same of one that has been read.
cfg::Parser make_or_fail(const Document& schema, const Options& options, std::vector<Problem>* not_enforced);

}  // namespace aici::json_schema
