// lark: the output is a text of a grammar in the dialect of Lark that llguidance and xgrammar take.
//
// The argument is the grammar (docs/grammars.md). Lexemes are as long as possible.
#include "aici/lark/lark.hpp"

#include <string_view>

#include "aici/host.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"

namespace {

aici::cfg::Parser parser_of(std::string_view argument) {
  if (argument.empty()) aici::fail("lark needs a grammar as its argument, such as start: \"yes\" | \"no\"");
  aici::cfg::Parser parser = aici::lark::make_or_fail(argument);
  if (parser.has_captures())
    aici::log("warning: lark does not tell captures to the client: use the controller extract\n");
  return parser;
}

class LarkController : public aici::RecognizerController<aici::cfg::Parser> {
 public:
  explicit LarkController(std::string_view argument) : RecognizerController(parser_of(argument)) {}
};

}  // namespace

AICI_REGISTER(LarkController);
