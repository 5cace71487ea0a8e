// make.hpp - makes a regular expression from a parsed pattern.
#pragma once

#include <optional>

#include "aici/regex/regex.hpp"
#include "syntax/parser.hpp"

namespace aici::regex {

/// Adds classes to `ast`. Returns nothing and fills in `error`, through the parser of the pattern, if it is refused.
std::optional<Regex> make_regex(Ast* ast, const Limits& limits, Parser* parser, Error* error);

}  // namespace aici::regex
