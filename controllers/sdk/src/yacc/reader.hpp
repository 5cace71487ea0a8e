// reader.hpp - reads a grammar in the syntax of yacc with its lexer inline.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "aici/detail/lr/parser.hpp"

namespace aici::yacc {

struct YaccGrammar {
  lr::Grammar grammar;
  lexer::Lexer lexer;
  lexer::Terminal skip = lexer::kNoTerminal;
  /// The number of conflicts in %expect; -1 without %expect.
  int expected_conflicts = -1;
  /// For the log.
  std::vector<std::string> warnings;
};

/// Fails the controller, with line and column, if the grammar is invalid.
YaccGrammar read_yacc(std::string_view text);

/// Makes the parser. Adds conflicts to `warnings`, or fails the controller if their number is not the expected one.
lr::Parser make_parser(YaccGrammar yacc, std::vector<std::string>* warnings);

}  // namespace aici::yacc
