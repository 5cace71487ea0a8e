// make.hpp - makes a regular expression from a parsed pattern.
#pragma once

#include <optional>
#include <vector>

#include "aici/regex/regex.hpp"
#include "syntax/parser.hpp"

namespace aici::regex {

/// Returns the nodes in sequence that a node is, without `^` as the first one and `$` as the last. `starts` is set to
/// whether there was a `^`.
std::vector<NodeId> without_anchors(const Ast& ast, NodeId node, bool* starts);

/// Adds classes to `ast`. Returns nothing and fills in `error`, through the parser of the pattern, if it is refused.
/// `ordered`: Program::ordered.
std::optional<Regex> make_regex(Ast* ast, const Limits& limits, Parser* parser, Error* error, bool ordered = false);

}  // namespace aici::regex
