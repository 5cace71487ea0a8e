// extract: the output is a text of a grammar in Lark or KBNF, and parts of it become variables.
//
// The argument is a grammar in Lark whose rules have the attribute `capture` (docs/grammars.md), or a JSON object:
//   {"lark": "..."}                        the same
//   {"kbnf": "...", "rules": ["name"]}     a grammar in KBNF, and the rules whose texts become variables
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/host.hpp"
#include "aici/json.hpp"
#include "aici/kbnf/kbnf.hpp"
#include "aici/lark/lark.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"

namespace {

using aici::cfg::Parser;

struct Arguments {
  std::string grammar;
  bool is_kbnf = false;
  std::vector<std::string> rules{};
};

Arguments from_json(std::string_view argument) {
  constexpr const char* kUsage =
      "an argument in JSON has the member \"lark\", a grammar, or the members \"kbnf\", a grammar, and \"rules\", a list of "
      "names";
  Arguments found;
  bool has_grammar = false;
  aici::JsonReader json(argument, "the argument");
  json.expect('{', "an object");
  do {
    const std::string name = json.string();
    json.expect(':', "`:`");
    if (name == "rules") {
      json.expect('[', "a list of names");
      if (!json.accept(']')) do
          found.rules.push_back(json.string());
        while (json.more(']'));
    } else if ((name == "lark" || name == "kbnf") && !has_grammar) {
      found.grammar = json.string();
      found.is_kbnf = name == "kbnf";
      has_grammar = true;
    } else {
      aici::fail(kUsage);
    }
  } while (json.more('}'));
  json.end();
  if (!has_grammar || found.is_kbnf == found.rules.empty()) aici::fail(kUsage);
  return found;
}

Arguments read(std::string_view argument) {
  if (argument.empty()) aici::fail("extract needs a grammar as its argument, such as start[capture]: \"yes\" | \"no\"");
  return argument.starts_with('{') ? from_json(argument) : Arguments{std::string(argument)};
}

Parser parser_of(const Arguments& arguments) {
  if (arguments.is_kbnf) return aici::kbnf::make_or_fail(arguments.grammar, arguments.rules);
  Parser parser = aici::lark::make_or_fail(arguments.grammar);
  if (!parser.has_captures())
    aici::fail("the grammar has no captures: name parts of the text by rules such as city[capture]: /[A-Z][a-z]+/");
  return parser;
}

class ExtractController : public aici::RecognizerController<Parser> {
 public:
  explicit ExtractController(std::string_view argument) : ExtractController(read(argument)) {}

  aici::MidResult mid_process(std::span<const aici::SeqId> forks) {
    aici::MidResult next = RecognizerController::mid_process(forks);
    for (const aici::TokenId token : aici::step().tokens()) aici::detail::append_token_text(token, text_);
    if (next.is_stop()) constraint().write_captures(text_);
    return next;
  }

 private:
  explicit ExtractController(const Arguments& arguments)
      : RecognizerController(parser_of(arguments), {.stop_when_complete = arguments.is_kbnf}) {}

  std::string text_;
};

}  // namespace

AICI_REGISTER(ExtractController);
