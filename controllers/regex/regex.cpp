// regex: the output matches a regular expression from its first to its last character.
//
// The argument is the expression (docs/regex.md), or a JSON object with one of
//   "regex": the expression
//   "until": a text, or a list of texts: any text that ends where one of them first occurs
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/json.hpp"
#include "aici/regex/regex.hpp"
#include "aici/sdk.hpp"

namespace {

using aici::regex::Error;
using aici::regex::Regex;

/// `compiled` with the byte classes of this vocabulary, which make masks fast; fails if it was refused.
Regex checked(std::optional<Regex> compiled, const Error& error) {
  if (!compiled) aici::fail("the regular expression is refused at " + error.text());
  compiled->set_byte_classes(aici::vocabulary().classes());
  return std::move(*compiled);
}

Regex compile(std::string_view pattern) {
  Error error;
  return checked(Regex::compile(pattern, &error), error);
}

Regex until(std::span<const std::string> stops) {
  Error error;
  return checked(Regex::until(stops, &error), error);
}

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
  return name == "regex" ? compile(texts[0]) : until(texts);
}

/// No expression begins with a brace, so it tells JSON from one. An argument that is empty was most likely forgotten.
Regex read(std::string_view argument) {
  if (argument.empty())
    aici::fail("the pattern is empty: regex needs one as its argument, such as [0-9]+ (for the empty text write (?:))");
  return argument.starts_with('{') ? from_json(argument) : compile(argument);
}

class RegexController : public aici::RecognizerController<Regex> {
 public:
  explicit RegexController(std::string_view argument) : RecognizerController(read(argument)) {}
};

}  // namespace

AICI_REGISTER(RegexController);
