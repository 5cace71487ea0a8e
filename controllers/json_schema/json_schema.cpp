// json_schema: the output is JSON that a JSON Schema allows.
//
// The argument is the schema, or {"schema": ..., "documents": ..., "whitespace": ..., ...} (docs/json_schema.md).
#include <string_view>
#include <vector>

#include "aici/host.hpp"
#include "aici/json_schema/make.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"
#include "arguments.hpp"

namespace {

using aici::json_schema::Problem;

aici::cfg::Parser recognizer_of(std::string_view argument) {
  const Arguments arguments = read_arguments(argument);
  std::vector<Problem> problems;
  aici::cfg::Parser parser = aici::json_schema::make_or_fail(arguments.schema, arguments.options, &problems);
  for (const Problem& problem : problems) aici::log("warning: not enforced: " + problem.text() + "\n");
  return parser;
}

class JsonSchema : public aici::RecognizerController<aici::cfg::Parser> {
 public:
  explicit JsonSchema(std::string_view argument) : RecognizerController(recognizer_of(argument)) {}
};

/// What most schemas have: strings, numbers and punctuation.
constexpr std::string_view kUsual = R"({"properties": {"": {"type": "string"}, "n": {"type": "integer"}}, "required": ["", "n"]})";

// also reserves memory, so that the guest's memory does not grow later
[[maybe_unused]] const bool prepared =
    (aici::json_schema::prepare(kUsual, R"({"": "a", "n": 12, "b": null})"), true);

}  // namespace

AICI_REGISTER(JsonSchema);
