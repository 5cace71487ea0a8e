// words.hpp - names, texts and patterns of Lark.
#pragma once

#include <string>
#include <string_view>

#include "../front/source.hpp"

namespace aici::lark {

/// Skips blanks and comments, which begin with // or #.
void skip_lark_blanks(front::Source& source);
/// Skips blanks within a line.
void skip_lark_spaces(front::Source& source);
/// Returns whether a rule or a terminal begins here. Only definitions have a colon after the name, so a body may extend
/// over several lines.
bool at_lark_definition(front::Source& source);
bool at_lark_directive(const front::Source& source);
/// Returns an empty name if there is none. Names may contain `-`.
std::string_view take_lark_name(front::Source& source);
/// Reads "..." and replaces its escapes.
std::string take_lark_text(front::Source& source);
/// Reads /.../ with flags; returns one regular expression, which is valid.
std::string take_lark_pattern(front::Source& source);
/// Reads the value of %regex or %llguidance: an object in braces.
std::string_view take_lark_object(front::Source& source);
/// Reads a nested grammar in braces; returns its text without them.
std::string_view take_lark_grammar(front::Source& source);
/// Reads the value of %json: an object in braces, or `true` or `false`.
std::string_view take_lark_schema(front::Source& source);

}  // namespace aici::lark
