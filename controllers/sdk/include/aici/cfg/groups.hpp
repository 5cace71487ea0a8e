// groups.hpp - a regular expression whose named groups are captures.
#pragma once

#include "aici/cfg/parser.hpp"
#include "aici/regex/groups.hpp"

namespace aici::cfg {

/// Makes a recognizer of a pattern; for controllers' constructors. Refuses the request if it is too large.
Parser make_or_fail(regex::Part pattern);

}  // namespace aici::cfg
