#include "arguments.hpp"

#include <optional>
#include <string>
#include <utility>

#include "aici/host.hpp"
#include "aici/json_schema/make.hpp"

using aici::json_schema::Document;
using aici::json_schema::Value;
using aici::json_schema::Whitespace;

namespace {

/// Returns whether the argument is an object with options. JSON Schema has no keyword `schema`, but ignores unknown
/// keywords. So an object that also has a keyword, or whose `schema` is no schema, is a schema itself.
bool has_options(const Document& argument) {
  const Value schema = argument.find(0, "schema");
  const bool possible = argument.is(schema, Document::Kind::kObject) || argument.is(schema, Document::Kind::kTrue) ||
                        argument.is(schema, Document::Kind::kFalse);
  for (std::uint32_t i = 0; possible && i < argument.count(0); i++)
    if (aici::json_schema::is_keyword(argument.name(argument.child(0, i)))) return false;
  return possible;
}

}  // namespace

Arguments read_arguments(std::string_view argument) {
  if (argument.find_first_not_of(" \t\r\n") == std::string_view::npos)
    aici::fail("json_schema needs a schema as its argument, such as {\"type\": \"object\"}");
  Arguments found;
  Document document;
  std::string error;
  if (!document.parse(argument, found.options.limits, &error)) aici::fail("the argument is not JSON: " + error);
  const Value schema = document.find(0, "schema");
  if (!has_options(document)) {
    found.schema = std::move(document);
    return found;
  }
  found.schema.parse(document.source(schema, argument), found.options.limits, &error);
  const Value others = document.find(0, "documents");
  for (std::uint32_t i = 0; document.is(others, Document::Kind::kObject) && i < document.count(others); i++) {
    const Value other = document.child(others, i);
    found.schema.append(document.name(other), document.source(other, argument), found.options.limits, &error);
  }
  for (std::uint32_t i = 0; i < document.count(0); i++) {
    const Value member = document.child(0, i);
    const std::string_view name = document.name(member);
    const std::string_view value =
        document.is(member, Document::Kind::kString) ? document.text(member) : std::string_view();
    if (name == "schema" || (name == "documents" && document.is(member, Document::Kind::kObject))) continue;
    const std::optional<Whitespace> whitespace = aici::json_schema::whitespace_named(value);
    if (name == "whitespace" && whitespace)
      found.options.whitespace = *whitespace;
    else if (name == "order" && (value == "schema" || value == "any"))
      found.options.order = value == "any" ? aici::json_schema::Order::kAny : aici::json_schema::Order::kSchema;
    else if (name == "unsupported" && (value == "refuse" || value == "warn"))
      found.options.warn = value == "warn";
    else if (name == "unknown_formats" && (value == "refuse" || value == "warn"))
      found.options.refuse_unknown_formats = value == "refuse";
    else
      aici::fail("the argument has an invalid member \"" + std::string(name) +
                 "\": besides \"schema\" it may have \"documents\" (an object of schemas by their URI), \"whitespace\" (\"flexible\", \"compact\" or "
                 "\"spaced\"), \"order\" (\"schema\" or \"any\"), \"unsupported\" and \"unknown_formats\" (\"refuse\" or \"warn\")");
  }
  return found;
}
