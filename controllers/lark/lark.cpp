// lark: the output is a text of a grammar in the dialect of Lark that llguidance and xgrammar take.
//
// The argument is the grammar (docs/grammars.md). Lexemes are as long as they can be.
#include <string_view>
#include <utility>

#include "aici/cfg/parser.hpp"
#include "aici/host.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"
#include "translate.hpp"

namespace {

aici::cfg::Parser parser_of(std::string_view argument) {
  if (argument.empty()) aici::fail("lark needs a grammar as its argument, such as start: \"yes\" | \"no\"");
  aici::front::Source source(argument);
  const LarkSyntax syntax = read_lark(source);
  Lark lark = translate_lark(syntax, source);
  return aici::cfg::make_or_fail(std::move(lark.grammar), lark.start);
}

class LarkController : public aici::RecognizerController<aici::cfg::Parser> {
 public:
  explicit LarkController(std::string_view argument) : RecognizerController(parser_of(argument)) {}
};

}  // namespace

AICI_REGISTER(LarkController);
