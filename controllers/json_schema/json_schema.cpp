// json_schema: the output is JSON that a JSON Schema allows.
//
// The argument is the schema, or {"schema": ..., "whitespace": ..., "unsupported": ...} (docs/json_schema.md).
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/cfg/parser.hpp"
#include "aici/host.hpp"
#include "aici/json_schema/schema.hpp"
#include "aici/recognizer_controller.hpp"
#include "aici/sdk.hpp"
#include "arguments.hpp"

namespace {

using aici::json_schema::Problem;

aici::cfg::Parser recognizer_of(std::string_view argument) {
  const Arguments arguments = read_arguments(argument);
  aici::cfg::Grammar grammar;
  std::vector<Problem> problems;
  const aici::cfg::Expr all = add_schema(grammar, arguments.schema, arguments.options, &problems);
  if (all == grammar.never()) {
    std::string message = "the schema is refused";
    for (const Problem& problem : problems)
      if (problem.fatal || !arguments.options.warn) message += "\n" + problem.text();
    aici::fail(message);
  }
  for (const Problem& problem : problems) aici::log("warning: not enforced: " + problem.text() + "\n");
  const aici::cfg::Rule start = grammar.declare("the document");
  grammar.define(start, all);
  return aici::cfg::make_or_fail(std::move(grammar), start);
}

class JsonSchema : public aici::RecognizerController<aici::cfg::Parser> {
 public:
  explicit JsonSchema(std::string_view argument) : RecognizerController(recognizer_of(argument)) {}
};

}  // namespace

AICI_REGISTER(JsonSchema);
