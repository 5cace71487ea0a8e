#include "arguments.hpp"

#include "aici/host.hpp"
#include "aici/json_schema/document.hpp"

using aici::json_schema::Document;
using aici::json_schema::Value;

Arguments read_arguments(std::string_view argument) {
  if (argument.empty()) aici::fail("kbnf needs a grammar as its argument, such as start::='yes' | 'no';");
  Arguments found;
  // no grammar begins with a brace
  if (argument.front() != '{') {
    found.grammar = argument;
    return found;
  }
  Document document;
  std::string error;
  if (!document.parse(argument, {}, &error))
    aici::fail("an argument that begins with { is JSON, and this is not: " + error);
  bool has_grammar = false;
  for (std::uint32_t i = 0; i < document.count(0); i++) {
    const Value member = document.child(0, i);
    const std::string_view name = document.name(member);
    const bool text = document.is(member, Document::Kind::kString);
    const std::string_view value = text ? document.text(member) : std::string_view();
    if (name == "grammar" && text)
      found.grammar = value, has_grammar = true;
    else if (name == "end" && (value == "whole" || value == "model"))
      found.ends_when_whole = value == "whole";
    else
      aici::fail("the argument has an invalid member \"" + std::string(name) +
                 "\": it may have \"grammar\", a string, and \"end\" (\"whole\" or \"model\")");
  }
  if (!has_grammar) aici::fail("the argument has no member \"grammar\"");
  return found;
}
