// gbnf: the output is a text of a grammar in GBNF, the syntax of llama.cpp.
//
// The argument is the grammar (docs/grammars.md).
#include "aici/gbnf/gbnf.hpp"

#include <string_view>

#include "aici/host.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"

namespace {

aici::cfg::Parser parser_of(std::string_view argument) {
  if (argument.empty()) aici::fail("gbnf needs a grammar as its argument, such as root ::= \"yes\" | \"no\"");
  return aici::gbnf::make_or_fail(argument);
}

class GbnfController : public aici::RecognizerController<aici::cfg::Parser> {
 public:
  explicit GbnfController(std::string_view argument) : RecognizerController(parser_of(argument)) {}
};

}  // namespace

AICI_REGISTER(GbnfController);
