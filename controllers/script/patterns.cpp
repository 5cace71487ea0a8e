#include "patterns.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "aici/cfg/groups.hpp"
#include "aici/choices.hpp"
#include "aici/gbnf/gbnf.hpp"
#include "aici/host.hpp"
#include "aici/json.hpp"
#include "aici/json_schema/make.hpp"
#include "aici/kbnf/kbnf.hpp"
#include "aici/lark/lark.hpp"
#include "aici/lr/yacc.hpp"
#include "aici/quotation.hpp"
#include "aici/vocabulary.hpp"

namespace script {
namespace {

aici::Choices read_choice(std::string_view source) {
  std::vector<std::string> texts;
  aici::JsonReader json(source, "the choice");
  json.expect('[', "a list of texts");
  if (!json.accept(']')) do
      texts.push_back(json.string());
    while (json.more(']'));
  json.end();
  if (texts.empty()) aici::fail("the choice is empty: at least one text is needed");
  return aici::Choices(texts);
}

/// Reads an object with two texts; "end" is optional, and stays as it is if it is missing.
void read_with_end(std::string_view source, std::string_view what, std::string& text, std::string& end) {
  aici::JsonReader json(source, what);
  json.expect('{', "an object");
  do {
    std::string& value = json.string() == "end" ? end : text;
    json.expect(':', "`:`");
    value = json.string();
  } while (json.more('}'));
  json.end();
}

/// Reads {"text": ..., "end": ...}.
aici::Quotation read_substring(std::string_view source) {
  std::string text, end;
  read_with_end(source, "the text and its end", text, end);
  if (text.empty()) aici::fail("the text is empty: there is no substring of it");
  if (end.size() > aici::Quotation::kMaxEndBytes) aici::fail("the end has more than 64 bytes");
  return aici::Quotation(text, end);
}

/// Reads {"schema": ..., "whitespace": ...}.
aici::cfg::Parser read_schema(std::string_view source) {
  using namespace aici::json_schema;
  Options options;
  Document all, schema;
  std::string error;
  if (!all.parse(source, options.limits, &error)) aici::fail("the schema is not JSON: " + error);
  const std::optional<Whitespace> whitespace = whitespace_named(all.text(all.find(0, "whitespace")));
  if (!whitespace) aici::fail("whitespace is \"flexible\", \"compact\" or \"spaced\"");
  options.whitespace = *whitespace;
  schema.parse(all.source(all.find(0, "schema"), source), options.limits, &error);
  return make_or_fail(schema, options, nullptr);
}

/// The named groups of a pattern are captures, if it can be read in parts.
aici::AnyConstraint read_pattern(std::string_view source) {
  aici::regex::Error error;
  std::optional<aici::regex::Part> whole = aici::regex::read_parts(source, &error);
  if (!whole) {
    aici::regex::Regex regex = aici::regex::compile_or_fail(source);
    aici::log("warning: the named groups become no variables: " + error.text() + "\n");
    return regex;
  }
  aici::regex::set_byte_classes(*whole, aici::vocabulary().classes());
  if (whole->regex) return std::move(*whole->regex);
  return aici::cfg::make_or_fail(std::move(*whole));
}

/// Reads a grammar, or the JSON argument of the controller kbnf; no grammar begins with a brace.
aici::AnyConstraint read_kbnf(std::string_view source) {
  if (!source.starts_with('{')) return {aici::kbnf::make_or_fail(source), {.stop_when_complete = true}};
  std::string grammar, end = "whole";
  read_with_end(source, "the grammar and its end", grammar, end);
  if (end != "whole" && end != "model") aici::fail("the end is \"whole\" or \"model\"");
  return {aici::kbnf::make_or_fail(grammar), {.stop_when_complete = end == "whole"}};
}

}  // namespace

aici::AnyConstraint make_constraint(script_kind kind, std::string_view source) {
  switch (kind) {
    case SCRIPT_REGEX:
      return read_pattern(source);
    case SCRIPT_OPTIONS:
      return read_choice(source);
    case SCRIPT_SCHEMA:
      return read_schema(source);
    case SCRIPT_SUBSTRING:
      return read_substring(source);
    case SCRIPT_KBNF:
      return read_kbnf(source);
    case SCRIPT_LARK:
      return aici::lark::make_or_fail(source);
    case SCRIPT_GBNF:
      return aici::gbnf::make_or_fail(source);
    case SCRIPT_YACC:
      return aici::yacc::make_or_fail(source);
  }
  aici::fail("unknown kind of pattern");
}

std::uint32_t Patterns::find(script_kind kind, std::string_view source) {
  for (std::size_t i = 0; i < patterns_.size(); i++)
    if (patterns_[i].kind == kind && patterns_[i].source == source) return static_cast<std::uint32_t>(i + 1);
  auto made = std::make_unique<aici::AnyConstraint>(make_constraint(kind, source));
  made->prepare();
  make_room();
  patterns_.push_back({kind, std::string(source), std::move(made), ++clock_});
  return static_cast<std::uint32_t>(patterns_.size());
}

aici::AnyConstraint& Patterns::start(std::uint32_t number) {
  Pattern& pattern = patterns_[number - 1];
  pattern.used = ++clock_;
  if (pattern.constraint == nullptr) {
    auto made = std::make_unique<aici::AnyConstraint>(make_constraint(pattern.kind, pattern.source));
    make_room();
    pattern.constraint = std::move(made);
  } else {
    pattern.constraint->restart();
  }
  return *pattern.constraint;
}

aici::AnyConstraint Patterns::make(std::uint32_t number) const {
  return make_constraint(patterns_[number - 1].kind, patterns_[number - 1].source);
}

void Patterns::make_room() {
  const auto alive = [](const Pattern& pattern) { return pattern.constraint != nullptr; };
  if (static_cast<std::size_t>(std::count_if(patterns_.begin(), patterns_.end(), alive)) < kMaxAlive) return;
  Pattern* oldest = nullptr;
  for (Pattern& pattern : patterns_)
    if (alive(pattern) && (oldest == nullptr || pattern.used < oldest->used)) oldest = &pattern;
  oldest->constraint.reset();
}

}  // namespace script
