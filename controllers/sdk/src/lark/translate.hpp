// translate.hpp - from a grammar in the dialect of Lark to one for the context-free engine.
#pragma once

#include "aici/cfg/grammar.hpp"
#include "aici/front/source.hpp"
#include "syntax.hpp"

namespace aici::lark {

struct Lark {
  cfg::Grammar grammar;
  cfg::Rule start;
};

/// Fails the controller if a name is not defined, a terminal is not regular, or no text comes of the grammar. Logs what
/// people should know about it.
Lark translate_lark(const LarkSyntax& syntax, const front::Source& source);

}  // namespace aici::lark
