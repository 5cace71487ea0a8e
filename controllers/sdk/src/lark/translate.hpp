// translate.hpp - translates a grammar in the dialect of Lark for the context-free engine.
#pragma once

#include "aici/cfg/grammar.hpp"
#include "../front/source.hpp"
#include "syntax.hpp"

namespace aici::lark {

struct Lark {
  cfg::Grammar grammar;
  cfg::Rule start;
};

/// Fails the controller if a name is not defined, a terminal is not regular, or the grammar has no text. Writes
/// warnings to the log.
Lark translate_lark(const LarkSyntax& syntax, const front::Source& source);

}  // namespace aici::lark
