#include "aici/cfg/parser.hpp"
#include "aici/host.hpp"

namespace aici::cfg {

Parser make_or_fail(Grammar grammar, Rule start, Lexemes lexemes) {
  std::string problem;
  std::optional<Parser> made = Parser::make(std::move(grammar), start, &problem, lexemes);
  if (!made) fail(problem);
  return std::move(*made);
}

}  // namespace aici::cfg
