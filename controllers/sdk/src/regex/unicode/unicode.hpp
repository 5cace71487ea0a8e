// unicode.hpp - Unicode properties and case folding, of the version that unicode_version() returns.
#pragma once

#include <string_view>

#include "aici/detail/regex/codepoint_set.hpp"

namespace aici::regex {

const char* unicode_version();

/// Finds the characters of `\p{name}`: a general category, a script or a property, or key=value with the key
/// gc (general_category) or sc (script). Ignores case, spaces, '_' and '-' in names. Returns false if there is no such
/// name.
bool find_property(std::string_view name, CodepointSet* out);

/// Return the sets of `\d`, `\s` and `\w` in Unicode: Nd; White_Space; Alphabetic, M, Nd, Pc and Join_Control (UTS 18,
/// annex C).
CodepointSet unicode_digit();
CodepointSet unicode_space();
CodepointSet unicode_word();

/// Adds all characters that simple case folding makes equal to a member of the set.
CodepointSet fold_case(const CodepointSet& set);
/// The same, only for the letters A-Z and a-z.
CodepointSet fold_case_ascii(const CodepointSet& set);

}  // namespace aici::regex
