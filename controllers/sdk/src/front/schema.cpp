#include "schema.hpp"

#include <string>
#include <vector>

#include "aici/host.hpp"
#include "aici/json_schema/schema.hpp"

namespace aici::front {

cfg::Expr read_schema(const Source& source, std::size_t at, std::string_view schema, cfg::Grammar& grammar,
                      bool plain) {
  const cfg::Lexemes around = grammar.lexemes();
  grammar.set_lexemes(cfg::Lexemes::kAnywhere);
  std::vector<json_schema::Problem> problems;
  cfg::Expr made = json_schema::add_schema(grammar, schema, {.plain = plain}, &problems);
  if (made == grammar.never()) {
    std::string message = "the schema is refused";
    for (const json_schema::Problem& problem : problems)
      if (problem.severity != json_schema::Problem::Severity::kRemark) message += "\n" + problem.text();
    source.fail(at, message);
  }
  for (const json_schema::Problem& problem : problems) aici::log("warning: not enforced: " + problem.text() + "\n");
  if (around != cfg::Lexemes::kAnywhere) {
    const cfg::Rule rule = grammar.declare("a JSON value");
    grammar.define(rule, made);
    made = grammar.call(rule);
  }
  grammar.set_lexemes(around);
  return made;
}

}  // namespace aici::front
