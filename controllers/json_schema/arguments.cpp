#include "arguments.hpp"

#include <optional>
#include <string>
#include <utility>

#include "aici/host.hpp"
#include "aici/json_schema/make.hpp"

using aici::json_schema::Document;
using aici::json_schema::Value;
using aici::json_schema::Whitespace;

Arguments read_arguments(std::string_view argument) {
  if (argument.find_first_not_of(" \t\r\n") == std::string_view::npos)
    aici::fail("json_schema needs a schema as its argument, such as {\"type\": \"object\"}");
  Arguments found;
  Document document;
  std::string error;
  if (!document.parse(argument, found.options.limits, &error)) aici::fail("the argument is not JSON: " + error);
  // schemas have no keyword `schema`, so it distinguishes the two forms
  const Value schema = document.find(0, "schema");
  if (schema == aici::json_schema::kNone) {
    found.schema = std::move(document);
    return found;
  }
  found.schema.parse(document.source(schema, argument), found.options.limits, &error);
  for (std::uint32_t i = 0; i < document.count(0); i++) {
    const Value member = document.child(0, i);
    const std::string_view name = document.name(member);
    const std::string_view value =
        document.is(member, Document::Kind::kString) ? document.text(member) : std::string_view();
    if (name == "schema") continue;
    const std::optional<Whitespace> whitespace = aici::json_schema::whitespace_named(value);
    if (name == "whitespace" && whitespace)
      found.options.whitespace = *whitespace;
    else if (name == "unsupported" && (value == "refuse" || value == "warn"))
      found.options.warn = value == "warn";
    else
      aici::fail("the argument has an invalid member \"" + std::string(name) +
                 "\": besides \"schema\" it may have \"whitespace\" (\"flexible\", \"compact\" or "
                 "\"spaced\") and \"unsupported\" (\"refuse\" or \"warn\")");
  }
  return found;
}
