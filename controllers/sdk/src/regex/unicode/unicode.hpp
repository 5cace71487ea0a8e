// unicode.hpp - Unicode properties and case folding. unicode_version() says of which version.
#pragma once

#include <string_view>

#include "aici/detail/regex/codepoint_set.hpp"

namespace aici::regex {

const char* unicode_version();

/// The characters of `\p{name}`: a general category, a script or a property, or key=value with the key
/// gc (general_category), sc (script). Case, spaces, '_' and '-' in names do not matter.
/// False if there is no such name.
bool find_property(std::string_view name, CodepointSet* out);

/// `\d`, `\s`, `\w` of Unicode: Nd; White_Space; Alphabetic, M, Nd, Pc and Join_Control (UTS 18, annex C).
CodepointSet unicode_digit();
CodepointSet unicode_space();
CodepointSet unicode_word();

/// The set with all characters that simple case folding makes equal to one of its members.
CodepointSet fold_case(const CodepointSet& set);
/// The same for the letters A-Z and a-z alone.
CodepointSet fold_case_ascii(const CodepointSet& set);

}  // namespace aici::regex
