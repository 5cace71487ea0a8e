// lark.hpp - grammars in the dialect of Lark that llguidance and xgrammar take, as recognizers. docs/grammars.md
// describes it.
#pragma once

#include <string_view>

#include "aici/cfg/parser.hpp"

namespace aici::lark {

/// Makes a recognizer from a grammar with the start rule `start` and longest-match lexemes; for controllers'
/// constructors. A grammar that is malformed, or has no text, refuses the request with a message that gives position
/// and reason. Writes warnings to the log.
cfg::Parser make_or_fail(std::string_view grammar);

}  // namespace aici::lark
