// Adds a JSON schema to a grammar.
#include <algorithm>
#include <iterator>

#include "aici/json_schema/schema.hpp"
#include "emit/emitter.hpp"

namespace aici::json_schema {

bool is_keyword(std::string_view name) {
  // those that are not in Expander's list
  static constexpr std::string_view kOthers[] = {
      "contentSchema", "default",     "definitions", "deprecated", "description",      "else",
      "examples",      "id",          "maxContains", "minContains", "readOnly",        "then",
      "title",         "unevaluatedItems", "unevaluatedProperties", "writeOnly",
  };
  return name.starts_with('$') || Expander::asserts(name) ||
         std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers);
}

cfg::Expr add_schema(cfg::Grammar& grammar, std::string_view schema, const Options& options,
                     std::vector<Problem>* problems) {
  Document document;
  std::string error;
  if (!document.parse(schema, options.limits, &error)) {
    problems->push_back({"", "", "the schema is not JSON: " + error, Problem::Severity::kFatal});
    return grammar.never();
  }
  return add_schema(grammar, document, options, problems);
}

cfg::Expr add_schema(cfg::Grammar& grammar, const Document& document, const Options& options,
                     std::vector<Problem>* problems) {
  const Schemas schemas(document);
  Strings strings(options.plain, options.refuse_unknown_formats);
  Problems found(document);
  Expander expander(schemas, strings, found, options.limits);
  Emitter emitter(grammar, schemas, expander, strings, found, options);
  const cfg::Expr all = emitter.run();
  // a constraint that cannot be enforced may be the reason why nothing is left
  if (!found.fatal() && (options.warn || !found.any())) {
    if (all == grammar.never())
      found.wrong(emitter.cause(), "no value meets this schema");
    else if (!grammar.productive()[all])
      found.wrong(emitter.cause(), "no value meets this schema: it would have to be infinite");
  }
  const bool refused = found.fatal() || (found.any() && !options.warn);
  for (Problem& problem : found.take()) problems->push_back(std::move(problem));
  return refused ? grammar.never() : all;
}

}  // namespace aici::json_schema
