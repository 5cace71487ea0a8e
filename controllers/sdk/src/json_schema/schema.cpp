#include "aici/json_schema/schema.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "aici/bias.hpp"
#include "aici/cfg/grammar.hpp"
#include "aici/host.hpp"
#include "aici/json_schema/make.hpp"
#include "emitter.hpp"

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

std::optional<Whitespace> whitespace_named(std::string_view name) {
  if (name == "flexible") return Whitespace::kFlexible;
  if (name == "compact") return Whitespace::kCompact;
  if (name == "spaced") return Whitespace::kSpaced;
  return std::nullopt;
}

namespace {

/// The terminals that `prepare` has kept.
std::optional<cfg::Grammar>& prepared() {
  [[clang::no_destroy]] static std::optional<cfg::Grammar> grammar;
  return grammar;
}

}  // namespace

void prepare(std::string_view schema, std::string_view text) {
  std::vector<Problem> problems;
  make_or_fail(R"({"pattern": "."})", {}, &problems);  // finds the nodes of rare characters
  Strings::keep_compiled(true);
  cfg::Parser parser = make_or_fail(schema, {}, &problems);
  Strings::keep_compiled(false);
  TokenSet mask;
  cfg::Parser::State state = parser.initial();
  for (const char c : text) {
    compute_bias(parser, state, mask);
    state = parser.append(state, static_cast<std::uint8_t>(c));
  }
  parser.inner_masks().keep();
  prepared() = std::move(parser).terminals();
}

cfg::Parser make_or_fail(std::string_view schema, const Options& options, std::vector<Problem>* not_enforced) {
  Document document;
  std::string error;
  if (!document.parse(schema, options.limits, &error)) fail("the schema is not JSON: " + error);
  return make_or_fail(document, options, not_enforced);
}

cfg::Parser make_or_fail(const Document& schema, const Options& options, std::vector<Problem>* not_enforced) {
  cfg::Grammar grammar = std::exchange(prepared(), std::nullopt).value_or(cfg::Grammar());
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
