// gbnf: the output is a text of a grammar in GBNF, the syntax of llama.cpp.
//
// The argument is the grammar (docs/grammars.md).
#include <string_view>
#include <utility>

#include "aici/cfg/parser.hpp"
#include "aici/host.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"
#include "translate.hpp"

namespace {

aici::cfg::Parser parser_of(std::string_view argument) {
  if (argument.empty()) aici::fail("gbnf needs a grammar as its argument, such as root ::= \"yes\" | \"no\"");
  aici::front::Source source(argument);
  const GbnfSyntax syntax = read_gbnf(source);
  Gbnf gbnf = translate_gbnf(syntax, source);
  return aici::cfg::make_or_fail(std::move(gbnf.grammar), gbnf.start);
}

class GbnfController : public aici::RecognizerController<aici::cfg::Parser> {
 public:
  explicit GbnfController(std::string_view argument) : RecognizerController(parser_of(argument)) {}
};

}  // namespace

AICI_REGISTER(GbnfController);
