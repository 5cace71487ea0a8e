#include "schema.hpp"

#include <string>
#include <vector>

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
    for (const json_schema::Problem& problem : problems) message += "\n" + problem.text();
    source.fail(at, message);
  }
  if (around != cfg::Lexemes::kAnywhere) {
    const cfg::Rule rule = grammar.declare("a JSON value");
    grammar.define(rule, made);
    made = grammar.call(rule);
  }
  grammar.set_lexemes(around);
  return made;
}

}  // namespace aici::front
