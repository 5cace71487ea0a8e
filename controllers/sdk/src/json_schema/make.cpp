#include "aici/json_schema/make.hpp"

#include <string>
#include <utility>

#include "aici/cfg/grammar.hpp"
#include "aici/host.hpp"
#include "strings/strings.hpp"

namespace aici::json_schema {

std::optional<Whitespace> whitespace_named(std::string_view name) {
  if (name == "flexible") return Whitespace::kFlexible;
  if (name == "compact") return Whitespace::kCompact;
  if (name == "spaced") return Whitespace::kSpaced;
  return std::nullopt;
}

void prepare(void (*use)()) { Strings::prepare(use); }

cfg::Parser make_or_fail(std::string_view schema, const Options& options, std::vector<Problem>* not_enforced) {
  Document document;
  std::string error;
  if (!document.parse(schema, options.limits, &error)) fail("the schema is not JSON: " + error);
  return make_or_fail(document, options, not_enforced);
}

cfg::Parser make_or_fail(const Document& schema, const Options& options, std::vector<Problem>* not_enforced) {
  cfg::Grammar grammar;
  std::vector<Problem> problems;
  const cfg::Expr all = add_schema(grammar, schema, options, &problems);
  if (all == grammar.never()) {
    std::string message = "the schema is refused";
    for (const Problem& problem : problems)
      if (problem.severity == Problem::Severity::kFatal || (!options.warn && problem.severity != Problem::Severity::kRemark))
        message += "\n" + problem.text();
    fail(message);
  }
  for (Problem& problem : problems) not_enforced->push_back(std::move(problem));
  const cfg::Rule start = grammar.declare("the document");
  grammar.define(start, all);
  return cfg::make_or_fail(std::move(grammar), start);
}

}  // namespace aici::json_schema
