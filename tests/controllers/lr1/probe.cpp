// probe.cpp - an LR(1) grammar behind plain functions, for the tests: whole texts go through the recognizer at once.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aici/bias.hpp"
#include "aici/detail/lr/parser.hpp"
#include "aici/token_set.hpp"
#include "../../../controllers/sdk/src/yacc/syntax.hpp"

#define PROBE(name) extern "C" __attribute__((export_name(#name)))

namespace {

using aici::lr::Parser;

std::optional<Parser> parser;
std::string warnings;
/// The states before the text that `probe_walk` has read, and after each of its bytes.
std::vector<Parser::State> states;

}  // namespace

PROBE(probe_alloc) void* probe_alloc(std::uint32_t size) { return std::malloc(size); }
PROBE(probe_free) void probe_free(void* at) { std::free(at); }

/// Makes the parser of a grammar, or fails as a controller does. Returns its warnings, a line break after each.
PROBE(probe_open) const char* probe_open(const char* text, std::uint32_t size) {
  std::vector<std::string> found;
  parser.emplace(aici::yacc::make_parser({text, size}, &found));
  warnings.clear();
  for (const std::string& each : found) warnings += each + "\n";
  states.assign(1, parser->initial());
  return warnings.c_str();
}

/// Returns the number of accepted bytes of the text, plus one if the text may end there.
PROBE(probe_run) std::uint32_t probe_run(const std::uint8_t* text, std::uint32_t size) {
  constexpr std::uint32_t kBetween = 1024;  // as between masks
  Parser::State state = parser->initial();
  for (std::uint32_t i = 0; i < size; i++) {
    if (i % kBetween == 0) parser->compact(&state);
    state = parser->append(state, text[i]);
    if (parser->dead(state)) return i;
  }
  return size + parser->special_allowed(state, aici::SpecialToken::eos);
}

/// Reads a text for the calls below; returns the number of accepted bytes.
PROBE(probe_walk) std::uint32_t probe_walk(const std::uint8_t* text, std::uint32_t size) {
  states.assign(1, parser->initial());
  parser->compact(&states[0]);
  for (std::uint32_t i = 0; i < size; i++) {
    const Parser::State next = parser->append(states.back(), text[i]);
    if (parser->dead(next)) break;
    states.push_back(next);
  }
  return static_cast<std::uint32_t>(states.size() - 1);
}

/// Returns whether this text is allowed after `at` bytes of the text that was read.
PROBE(probe_may_come) std::uint32_t probe_may_come(std::uint32_t at, const std::uint8_t* text, std::uint32_t size) {
  Parser::State state = states[at];
  for (std::uint32_t i = 0; i < size && !parser->dead(state); i++) state = parser->append(state, text[i]);
  return !parser->dead(state);
}

/// Returns the mask after `at` bytes of the text that was read.
PROBE(probe_mask) const std::uint32_t* probe_mask(std::uint32_t at) {
  static aici::TokenSet mask;
  aici::compute_bias(*parser, states[at], mask);
  return mask.data();
}

/// Returns why answers since the grammar was read are invalid, or an empty text.
PROBE(probe_failure) const char* probe_failure() { return parser->failure(); }
