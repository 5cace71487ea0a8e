// Makes a recognizer from a grammar in GBNF.
#include <utility>

#include "aici/gbnf/gbnf.hpp"
#include "translate.hpp"

namespace aici::gbnf {

cfg::Parser make_or_fail(std::string_view grammar) {
  front::Source source(grammar);
  const GbnfSyntax syntax = read_gbnf(source);
  Gbnf gbnf = translate_gbnf(syntax, source);
  return cfg::make_or_fail(std::move(gbnf.grammar), gbnf.start);
}

}  // namespace aici::gbnf
