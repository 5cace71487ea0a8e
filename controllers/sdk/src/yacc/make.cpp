// Makes a recognizer from a grammar in the syntax of yacc.
#include <string>
#include <vector>

#include "aici/host.hpp"
#include "aici/lr/yacc.hpp"
#include "reader.hpp"

namespace aici::yacc {

lr::Parser make_or_fail(std::string_view grammar) {
  std::vector<std::string> warnings;
  lr::Parser parser = make_parser(read_yacc(grammar), &warnings);
  for (const std::string& warning : warnings) log("warning: " + warning + "\n");
  return parser;
}

}  // namespace aici::yacc
