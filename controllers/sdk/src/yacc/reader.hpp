// reader.hpp - reads a grammar in the syntax of yacc with its lexer inline.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "aici/lr/parser.hpp"

namespace aici::yacc {

struct YaccGrammar {
  lr::Grammar grammar;
  lexer::Lexer lexer;
  lexer::Terminal skip = lexer::kNoTerminal;
  /// Conflicts that the grammar says it has (%expect); -1 = it does not say.
  int expected_conflicts = -1;
  /// For the log.
  std::vector<std::string> warnings;
};

/// Fails the controller, with line and column, if the text is no such grammar.
YaccGrammar read_yacc(std::string_view text);

/// The parser of the grammar. Conflicts go to `warnings`, or fail the controller if they are not as many as expected.
lr::Parser make_parser(YaccGrammar yacc, std::vector<std::string>* warnings);

}  // namespace aici::yacc
