// gbnf.hpp - grammars in GBNF, the syntax of llama.cpp, as recognizers. docs/grammars.md describes it.
#pragma once

#include <string_view>

#include "aici/cfg/parser.hpp"

namespace aici::gbnf {

/// For constructors of controllers: the texts of a grammar, from its rule `root` on. One that is malformed, or has no
/// text, refuses the request, with a message that says where and what is wrong. Logs what people should know about it.
cfg::Parser make_or_fail(std::string_view grammar);

}  // namespace aici::gbnf
