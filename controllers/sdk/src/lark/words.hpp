// words.hpp - names, texts and patterns of Lark.
#pragma once

#include <string>
#include <string_view>

#include "../front/source.hpp"

namespace aici::lark {

/// Blanks and comments, which begin with // or #.
void skip_lark_blanks(front::Source& source);
/// Of one line.
void skip_lark_spaces(front::Source& source);
/// Does a rule or a terminal begin here? Only then a colon comes, so lines may end anywhere.
bool at_lark_definition(front::Source& source);
bool at_lark_directive(const front::Source& source);
/// Empty if there is none. Names may have `-` in them.
std::string_view take_lark_name(front::Source& source);
/// "...", its escapes replaced.
std::string take_lark_text(front::Source& source);
/// /.../ and flags as one regular expression, which has been checked.
std::string take_lark_pattern(front::Source& source);
/// What follows %regex or %llguidance: an object in braces.
std::string_view take_lark_object(front::Source& source);
/// What follows %json: the same, or `true` or `false`.
std::string_view take_lark_schema(front::Source& source);

}  // namespace aici::lark
