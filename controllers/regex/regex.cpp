// regex: the output matches a regular expression from its first to its last character.
//
// The argument is the expression (docs/regex.md), or a JSON object with one of
//   "regex": the expression
//   "until": a text, or a list of texts: any text that ends where one of them first occurs
#include <string>
#include <string_view>
#include <vector>

#include "aici/json.hpp"
#include "aici/regex/regex.hpp"
#include "aici/sdk.hpp"

namespace {

using aici::regex::compile_or_fail;
using aici::regex::Regex;

Regex from_json(std::string_view argument) {
  constexpr const char* kUsage =
      "an argument in JSON has one member: \"regex\", a string, or \"until\", a string or a "
      "list of strings";
  aici::JsonReader json(argument, "the argument");
  json.expect('{', "an object");
  const std::string name = json.string();
  json.expect(':', "`:`");
  std::vector<std::string> texts;
  if (name == "until" && json.accept('[')) {
    if (!json.accept(']')) do
        texts.push_back(json.string());
      while (json.more(']'));
  } else if (name == "until" || name == "regex") {
    texts.push_back(json.string());
  }
  if (texts.empty() || json.more('}')) aici::fail(kUsage);
  json.end();
  return name == "regex" ? compile_or_fail(texts[0]) : aici::regex::until_or_fail(texts);
}

/// Parses the argument. Expressions do not begin with a brace, so a brace means JSON. An empty argument is refused,
/// since it is most likely a mistake.
Regex read(std::string_view argument) {
  if (argument.empty())
    aici::fail("the pattern is empty: regex needs one as its argument, such as [0-9]+ (for the empty text write (?:))");
  return argument.starts_with('{') ? from_json(argument) : compile_or_fail(argument);
}

class RegexController : public aici::RecognizerController<Regex> {
 public:
  explicit RegexController(std::string_view argument) : RecognizerController(read(argument)) {}
};

}  // namespace

AICI_REGISTER(RegexController);
