#include "aici/json_schema/schema.hpp"
#include "emit/emitter.hpp"

namespace aici::json_schema {

cfg::Expr add_schema(cfg::Grammar& grammar, std::string_view schema, const Options& options,
                     std::vector<Problem>* problems) {
  Document document;
  std::string error;
  if (!document.parse(schema, options.limits, &error)) {
    problems->push_back({"", "the schema is not JSON: " + error, true});
    return grammar.never();
  }
  return add_schema(grammar, document, options, problems);
}

cfg::Expr add_schema(cfg::Grammar& grammar, const Document& document, const Options& options,
                     std::vector<Problem>* problems) {
  const Schemas schemas(document);
  Strings strings(options.plain);
  Problems found(document);
  Expander expander(schemas, strings, found, options.limits);
  Emitter emitter(grammar, schemas, expander, strings, found, options);
  const cfg::Expr all = emitter.run();
  // a constraint that cannot be enforced may be the reason why nothing is left
  if (!found.fatal() && (options.warn || !found.any())) {
    if (all == grammar.never())
      found.wrong(0, "no value meets this schema");
    else if (!grammar.productive()[all])
      found.wrong(0, "no value meets this schema: it would have to be infinite");
  }
  bool refused = found.fatal();
  for (Problem& problem : found.take()) {
    refused = refused || problem.fatal || !options.warn;
    problems->push_back(std::move(problem));
  }
  return refused ? grammar.never() : all;
}

}  // namespace aici::json_schema
