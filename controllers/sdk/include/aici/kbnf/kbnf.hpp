// kbnf.hpp - grammars in KBNF, Koishi's BNF, as recognizers. docs/grammars.md describes the syntax.
#pragma once

#include <string_view>

#include "aici/cfg/parser.hpp"

namespace aici::kbnf {

/// For constructors of controllers: the texts of a grammar, from its rule `start` on. One that is malformed, or has no
/// text but the empty one, refuses the request, with a message that says where and what is wrong. Logs what people
/// should know about it.
cfg::Parser make_or_fail(std::string_view grammar);

}  // namespace aici::kbnf
