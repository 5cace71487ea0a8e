#include "argument.hpp"

#include "aici/host.hpp"
#include "aici/json_schema/document.hpp"
#include "script.h"

namespace script {

using aici::json_schema::Document;
using aici::json_schema::Value;

Argument read_argument(std::string_view text) {
  Argument found;
  found.name = "script";
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    aici::fail(std::string("this controller needs a script in ") + interpreter_language +
               " as its argument, or {\"script\": \"...\", \"name\": \"file name\", \"arg\": ...}");
  if (!text.starts_with('{')) {
    found.source = text;
    return found;
  }
  Document document;
  std::string error;
  if (!document.parse(text, {}, &error))
    aici::fail("an argument that begins with { is JSON, {\"script\": ...}, and this is not: " + error);
  bool has_script = false;
  for (std::uint32_t i = 0; i < document.count(0); i++) {
    const Value member = document.child(0, i);
    const std::string_view name = document.name(member);
    const bool is_text = document.is(member, Document::Kind::kString);
    if (name == "script" && is_text)
      found.source = document.text(member), has_script = true;
    else if (name == "name" && is_text)
      found.name = document.text(member);
    else if (name == "arg")
      found.value = document.source(member, text);
    else
      aici::fail("the argument has an invalid member \"" + std::string(name) +
                 "\": it may have \"script\" and \"name\", both strings, and \"arg\", any value");
  }
  if (!has_script) aici::fail("the argument has no member \"script\"");
  return found;
}

}  // namespace script
