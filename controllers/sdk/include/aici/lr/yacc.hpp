// yacc.hpp - LR(1) grammars in the syntax of yacc, with an inline lexer, as recognizers. docs/grammars.md describes the
// syntax.
#pragma once

#include <string_view>

#include "aici/detail/lr/parser.hpp"

namespace aici::yacc {

/// Makes a recognizer from a grammar; for controllers' constructors. A grammar that is malformed, has no text, or has
/// another number of conflicts than it declares, refuses the request with a message that gives position and reason.
/// Writes warnings to the log.
lr::Parser make_or_fail(std::string_view grammar);

}  // namespace aici::yacc
