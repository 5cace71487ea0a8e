// translate.hpp - from a grammar in GBNF to one for the context-free engine.
//
// GBNF has no terminals but characters. What of a grammar is regular becomes patterns: a rule that needs no rule but
// such ones stands where it is called, and what is regular side by side is one pattern. The texts are the same; the
// engine reads them a word at a time, and not a character.
#pragma once

#include "aici/cfg/grammar.hpp"
#include "aici/front/source.hpp"
#include "syntax.hpp"

namespace aici::gbnf {

struct Gbnf {
  cfg::Grammar grammar;
  cfg::Rule start;
};

/// Fails the controller if a name has no rule, or no text comes of the grammar. Logs what people should know about it.
Gbnf translate_gbnf(const GbnfSyntax& syntax, const front::Source& source);

}  // namespace aici::gbnf
