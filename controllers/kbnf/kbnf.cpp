// kbnf: the output is a text of a grammar in KBNF, Koishi's BNF.
//
// The argument is the grammar (docs/grammars.md), or {"grammar": "...", "end": "model"}. The output ends with the
// first token after which it is complete; with "end": "model", the model ends it.
#include <string_view>

#include "aici/kbnf/kbnf.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"
#include "arguments.hpp"

namespace {

class KbnfController : public aici::RecognizerController<aici::cfg::Parser> {
 public:
  explicit KbnfController(std::string_view argument) : KbnfController(read_arguments(argument)) {}

 private:
  explicit KbnfController(const Arguments& arguments)
      : RecognizerController(aici::kbnf::make_or_fail(arguments.grammar),
                             {.stop_when_complete = arguments.ends_when_whole}) {}
};

}  // namespace

AICI_REGISTER(KbnfController);
