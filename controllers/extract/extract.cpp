// extract: the output is a text of a grammar or of a regular expression, and parts of it become variables.
//
// The argument is a grammar in Lark whose rules have the attribute `capture` (docs/grammars.md), or a JSON object:
//   {"lark": "..."}                        the same
//   {"kbnf": "...", "rules": ["name"]}     a grammar in KBNF, and the rules whose texts become variables
//   {"regex": "..."}                       a regular expression with named groups
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/cfg/groups.hpp"
#include "aici/host.hpp"
#include "aici/json.hpp"
#include "aici/kbnf/kbnf.hpp"
#include "aici/lark/lark.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"

namespace {

using aici::cfg::Parser;

enum class Kind { kLark, kKbnf, kRegex };

struct Arguments {
  std::string source;
  Kind kind = Kind::kLark;
  std::vector<std::string> rules{};
};

std::optional<Kind> kind_named(std::string_view name) {
  if (name == "lark") return Kind::kLark;
  if (name == "kbnf") return Kind::kKbnf;
  if (name == "regex") return Kind::kRegex;
  return std::nullopt;
}

Arguments from_json(std::string_view argument) {
  constexpr const char* kUsage =
      "an argument in JSON has one of the members \"lark\", a grammar, \"regex\", a pattern with named groups, and "
      "\"kbnf\", a grammar, which needs \"rules\", a list of names";
  Arguments found;
  bool has_source = false;
  aici::JsonReader json(argument, "the argument");
  json.expect('{', "an object");
  do {
    const std::string name = json.string();
    json.expect(':', "`:`");
    const std::optional<Kind> kind = kind_named(name);
    if (name == "rules") {
      json.expect('[', "a list of names");
      if (!json.accept(']')) do
          found.rules.push_back(json.string());
        while (json.more(']'));
    } else if (kind && !has_source) {
      found.source = json.string();
      found.kind = *kind;
      has_source = true;
    } else {
      aici::fail(kUsage);
    }
  } while (json.more('}'));
  json.end();
  if (!has_source || (found.kind == Kind::kKbnf) == found.rules.empty()) aici::fail(kUsage);
  return found;
}

Arguments read(std::string_view argument) {
  if (argument.empty()) aici::fail("extract needs a grammar as its argument, such as start[capture]: \"yes\" | \"no\"");
  return argument.starts_with('{') ? from_json(argument) : Arguments{std::string(argument)};
}

Parser parser_of(const Arguments& arguments) {
  if (arguments.kind == Kind::kKbnf) return aici::kbnf::make_or_fail(arguments.source, arguments.rules);
  Parser parser = arguments.kind == Kind::kRegex
                      ? aici::cfg::make_or_fail(aici::regex::read_parts_or_fail(arguments.source))
                      : aici::lark::make_or_fail(arguments.source);
  if (!parser.has_captures())
    aici::fail("there are no captures: name parts of the text, in a grammar by rules such as city[capture]: "
               "/[A-Z][a-z]+/, in a regular expression by groups such as (?P<city>[A-Z][a-z]+)");
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
      : RecognizerController(parser_of(arguments), {.stop_when_complete = arguments.kind == Kind::kKbnf}) {}

  std::string text_;
};

}  // namespace

AICI_REGISTER(ExtractController);
