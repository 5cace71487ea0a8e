// probe.cpp - JSON Schema as a grammar behind plain functions, for the tests.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aici/cfg/parser.hpp"
#include "aici/json_schema/schema.hpp"

#define PROBE(name) extern "C" __attribute__((export_name(#name)))

using aici::cfg::Parser;
using namespace aici::json_schema;

namespace {

std::optional<Parser> parser;
std::string message;
/// Texts of documents to which the next schema refers, by URI.
std::vector<std::pair<std::string, std::string>> documents;

}  // namespace

PROBE(probe_alloc) void* probe_alloc(std::uint32_t size) { return std::malloc(size); }
PROBE(probe_free) void probe_free(void* at) { std::free(at); }

/// Adds a document to which the next schema refers.
PROBE(probe_document)
void probe_document(const char* text, std::uint32_t size, std::uint32_t uri_size) {
  documents.emplace_back(std::string(text, uri_size), std::string(text + uri_size, size - uri_size));
}

/// Returns 1 if the schema is accepted; other calls use it. The message then lists the parts that are not enforced.
PROBE(probe_compile)
std::uint32_t probe_compile(const char* schema, std::uint32_t size, std::uint32_t whitespace, std::uint32_t warn,
                            std::uint32_t refuse_unknown_formats, std::uint32_t any_order) {
  Options options;
  options.whitespace = static_cast<Whitespace>(whitespace);
  options.warn = warn != 0;
  options.order = any_order ? Order::kAny : Order::kSchema;
  options.refuse_unknown_formats = refuse_unknown_formats != 0;
  std::vector<Problem> problems;
  aici::cfg::Grammar grammar;
  aici::cfg::Expr all = grammar.never();
  if (documents.empty()) {
    all = add_schema(grammar, {schema, size}, options, &problems);
  } else {
    Document document;
    std::string error;
    bool parsed = document.parse({schema, size}, options.limits, &error);
    for (const auto& [uri, text] : documents) parsed = parsed && document.append(uri, text, options.limits, &error);
    documents.clear();
    if (!parsed) std::abort();
    all = add_schema(grammar, document, options, &problems);
  }
  message.clear();
  for (const Problem& problem : problems) message += problem.text() + "\n";
  if (all == grammar.never()) return 0;
  const aici::cfg::Rule start = grammar.declare("the document");
  grammar.define(start, all);
  std::string problem;
  parser = Parser::make(std::move(grammar), start, &problem);
  if (!parser) message += "grammar: " + problem + "\n";
  return parser.has_value();
}
PROBE(probe_message) const char* probe_message() { return message.c_str(); }
PROBE(probe_message_size) std::uint32_t probe_message_size() { return static_cast<std::uint32_t>(message.size()); }

/// Returns the number of allowed bytes of the text, times two, plus one if the text may end after them.
PROBE(probe_run) std::uint32_t probe_run(const std::uint8_t* text, std::uint32_t size) {
  Parser::State state = parser->initial();
  parser->compact(&state);
  std::uint32_t i = 0;
  for (; i < size; i++) {
    const Parser::State next = parser->append(state, text[i]);
    if (parser->dead(next)) break;
    state = next;
  }
  return i << 1 | parser->special_allowed(state, aici::SpecialToken::eos);
}

PROBE(probe_initial) std::uint32_t probe_initial() { return parser->initial(); }
PROBE(probe_append) std::uint32_t probe_append(std::uint32_t state, std::uint32_t byte) {
  return parser->append(state, static_cast<std::uint8_t>(byte));
}
/// Forgets states if there are many. Returns the state's new number; others may have become invalid.
PROBE(probe_compact) std::uint32_t probe_compact(std::uint32_t state) {
  parser->compact(&state);
  return state;
}
/// Sets out[byte] to 1 if the byte is allowed, and out[256] if the text may end here.
PROBE(probe_row) void probe_row(std::uint32_t state, std::uint8_t* out) {
  for (std::uint32_t byte = 0; byte < 256; byte++) out[byte] = parser->byte_allowed(state, static_cast<std::uint8_t>(byte));
  out[256] = parser->special_allowed(state, aici::SpecialToken::eos);
}
/// Returns the index of the first of these bytes that is allowed; `size` if none is.
PROBE(probe_first) std::uint32_t probe_first(const std::uint8_t* bytes, std::uint32_t size, std::uint32_t state) {
  std::uint32_t i = 0;
  while (i < size && !parser->byte_allowed(state, bytes[i])) i++;
  return i;
}
/// Returns 1 if the text may end here.
PROBE(probe_may_end) std::uint32_t probe_may_end(std::uint32_t state) {
  return parser->special_allowed(state, aici::SpecialToken::eos);
}
PROBE(probe_failed) std::uint32_t probe_failed() { return parser->failure() != nullptr; }
