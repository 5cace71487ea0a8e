// lr1: the output is a text of an LR(1) grammar in the syntax of yacc.
//
// The argument is the grammar, with keywords and regular expressions inline (docs/grammars.md).
#include <string_view>

#include "aici/host.hpp"
#include "aici/lr/yacc.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"

namespace {

aici::lr::Parser parser_of(std::string_view argument) {
  if (argument.empty()) aici::fail("lr1 needs a grammar as its argument");
  return aici::yacc::make_or_fail(argument);
}

class Lr1 : public aici::RecognizerController<aici::lr::Parser> {
 public:
  explicit Lr1(std::string_view argument) : RecognizerController(parser_of(argument)) {}
};

}  // namespace

AICI_REGISTER(Lr1);
