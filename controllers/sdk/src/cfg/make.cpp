// Makes a recognizer from a grammar, for controllers' constructors.
#include "aici/cfg/parser.hpp"
#include "aici/host.hpp"
#include "aici/vocabulary.hpp"

namespace aici::cfg {

Parser make_or_fail(Grammar grammar, Rule start) {
  grammar.terminals().set_byte_classes(vocabulary().classes());
  std::string problem;
  std::optional<Parser> made = Parser::make(std::move(grammar), start, &problem);
  if (!made) fail(problem);
  made->rare_nodes();  // now, once for all sequences
  return std::move(*made);
}

}  // namespace aici::cfg
