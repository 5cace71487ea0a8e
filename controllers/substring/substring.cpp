// substring: the output is a verbatim part of a given text.
//
// The argument is the text, or a JSON object:
//   "text": the text, which is UTF-8 and not empty
//   "end":  a marker that the model writes after the part and that ends the output (docs/grammars.md)
#include <string>
#include <string_view>

#include "aici/json.hpp"
#include "aici/quotation.hpp"
#include "aici/sdk.hpp"
#include "aici/text.hpp"

namespace {

struct Request {
  std::string_view text;
  std::string end;
  bool has_end = false;
};

/// Parses the argument. A text that begins with a brace must be given as JSON. `storage` holds the text from JSON.
Request read(std::string_view argument, std::string* storage) {
  if (!argument.starts_with('{')) return {.text = argument};
  Request request;
  bool has_text = false;
  aici::JsonReader json(argument, "the argument, which begins with a brace,");
  json.expect('{', "an object");
  if (!json.accept('}')) do {
      const std::string name = json.string();
      json.expect(':', "`:`");
      if (name == "text" && !has_text) {
        request.text = *storage = json.string();
        has_text = true;
      } else if (name == "end" && !request.has_end) {
        request.end = json.string();
        request.has_end = true;
      } else {
        aici::fail("an argument in JSON has the member \"text\" and optionally \"end\", each once: not \"" + name +
                   "\"");
      }
    } while (json.more('}'));
  json.end();
  return request;
}

aici::Quotation quotation(std::string_view argument) {
  if (const std::size_t at = aici::utf8_length(argument); at != argument.size())
    aici::fail(std::string("the argument is not UTF-8 at byte ").append(aici::Number(static_cast<std::uint32_t>(at)).text()));
  std::string storage;
  const Request request = read(argument, &storage);
  if (request.text.empty())
    aici::fail("substring needs a text as its argument, or JSON such as {\"text\": \"...\", \"end\": \"\\n\"}");
  if (request.has_end && request.end.empty())
    aici::fail("\"end\" is empty: leave it out, and the output may end after each character");
  if (request.end.size() > aici::Quotation::kMaxEndBytes) aici::fail("\"end\" has more than 64 bytes");
  static_assert(aici::Quotation::kMaxEndBytes == 64);
  return aici::Quotation(request.text, request.end);
}

class Substring : public aici::RecognizerController<aici::Quotation> {
 public:
  explicit Substring(std::string_view argument) : RecognizerController(quotation(argument)) {}
};

}  // namespace

AICI_REGISTER(Substring);
