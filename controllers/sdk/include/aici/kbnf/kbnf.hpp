// kbnf.hpp - grammars in KBNF, Koishi's BNF, as recognizers. docs/grammars.md describes the syntax.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "aici/cfg/parser.hpp"

namespace aici::kbnf {

/// Makes a recognizer from a grammar with the start rule `start`; for controllers' constructors. A grammar that is
/// malformed, or has no text but the empty one, refuses the request with a message that gives position and reason.
/// Writes warnings to the log. The texts of the rules in `extract` are captures.
cfg::Parser make_or_fail(std::string_view grammar, std::span<const std::string> extract = {});

}  // namespace aici::kbnf
