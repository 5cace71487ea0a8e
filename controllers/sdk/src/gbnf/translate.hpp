// translate.hpp - translates a grammar in GBNF for the context-free engine.
//
// The only terminals of GBNF are characters. Regular parts of a grammar become patterns: a rule that calls only regular
// rules is inlined where it is called, and adjacent regular parts become one pattern. The texts stay the same, and the
// engine reads a word at a time instead of a character.
#pragma once

#include "aici/cfg/grammar.hpp"
#include "../front/source.hpp"
#include "syntax.hpp"

namespace aici::gbnf {

struct Gbnf {
  cfg::Grammar grammar;
  cfg::Rule start;
};

/// Fails the controller if a name has no rule or the grammar has no text. Writes warnings to the log.
Gbnf translate_gbnf(const GbnfSyntax& syntax, const front::Source& source);

}  // namespace aici::gbnf
