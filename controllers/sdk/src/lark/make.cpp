// Makes a recognizer from a grammar in the dialect of Lark.
#include <utility>

#include "aici/lark/lark.hpp"
#include "translate.hpp"

namespace aici::lark {

cfg::Parser make_or_fail(std::string_view grammar) {
  front::Source source(grammar);
  const LarkSyntax syntax = read_lark(source);
  Lark lark = translate_lark(syntax, source);
  return cfg::make_or_fail(std::move(lark.grammar), lark.start);
}

}  // namespace aici::lark
