// yacc.hpp - LR(1) grammars in the syntax of yacc, with their lexer inline, as recognizers. docs/grammars.md describes
// the syntax.
#pragma once

#include <string_view>

#include "aici/lr/parser.hpp"

namespace aici::yacc {

/// For constructors of controllers: the texts of a grammar. One that is malformed, has no text, or has other conflicts
/// than it says, refuses the request, with a message that says where and what is wrong. Logs what people should know
/// about it.
lr::Parser make_or_fail(std::string_view grammar);

}  // namespace aici::yacc
