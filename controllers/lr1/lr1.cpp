// lr1: the output is a text of an LR(1) grammar in the syntax of yacc.
//
// The argument is the grammar, with keywords and regular expressions inline (docs/grammars.md).
#include <string>
#include <string_view>
#include <vector>

#include "aici/host.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"
#include "yacc.hpp"

namespace {

aici::lr::Parser parser_of(std::string_view argument) {
  if (argument.empty()) aici::fail("lr1 needs a grammar as its argument");
  std::vector<std::string> warnings;
  aici::lr::Parser parser = make_parser(read_yacc(argument), &warnings);
  for (const std::string& warning : warnings) aici::log("warning: " + warning + "\n");
  return parser;
}

class Lr1 : public aici::RecognizerController<aici::lr::Parser> {
 public:
  explicit Lr1(std::string_view argument) : RecognizerController(parser_of(argument)) {}
};

}  // namespace

AICI_REGISTER(Lr1);
