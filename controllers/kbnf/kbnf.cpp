// kbnf: the output is a text of a grammar in KBNF, Koishi's BNF.
//
// The argument is the grammar (docs/grammars.md), or {"grammar": "...", "end": "model"}. The output ends with the
// first token after which it is whole, or, as "end" says, where the model ends it.
#include <cstdint>
#include <string_view>
#include <utility>

#include "aici/cfg/parser.hpp"
#include "aici/host.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"
#include "arguments.hpp"
#include "reader.hpp"

namespace {

bool has_byte(aici::cfg::Parser& parser) {
  for (unsigned byte = 0; byte < 256; byte++)
    if (parser.byte_allowed(parser.initial(), static_cast<std::uint8_t>(byte))) return true;
  return false;
}

aici::cfg::Parser parser_of(std::string_view grammar) {
  Kbnf kbnf = read_kbnf(grammar);
  aici::cfg::Parser parser = aici::cfg::make_or_fail(std::move(kbnf.grammar), kbnf.start);
  if (!has_byte(parser)) aici::fail("only the empty text comes of start; one byte at least is needed");
  return parser;
}

class KbnfController : public aici::RecognizerController<aici::cfg::Parser> {
 public:
  explicit KbnfController(std::string_view argument) : KbnfController(read_arguments(argument)) {}

 private:
  explicit KbnfController(const Arguments& arguments)
      : RecognizerController(parser_of(arguments.grammar), {.stop_when_complete = arguments.ends_when_whole}) {}
};

}  // namespace

AICI_REGISTER(KbnfController);
