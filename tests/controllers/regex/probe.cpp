// probe.cpp - the regex engine behind plain functions, for the tests. Built to Wasm, and natively for fuzzing.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "aici/regex/regex.hpp"
#include "../../../controllers/sdk/src/regex/unicode.hpp"

#ifdef __wasm__
#define PROBE(name) extern "C" __attribute__((export_name(#name)))
#else
#define PROBE(name) extern "C" __attribute__((visibility("default")))
#endif

using aici::regex::Error;
using aici::regex::Limits;
using aici::regex::Regex;

namespace {

std::optional<Regex> regex;
Error error;
std::string message;
std::uint8_t byte_class[256];
Limits limits;

}  // namespace

PROBE(probe_alloc) void* probe_alloc(std::uint32_t size) { return std::malloc(size); }
PROBE(probe_free) void probe_free(void* at) { std::free(at); }

/// Changes the limits of later compilations; 0 keeps the default.
PROBE(probe_limits)
void probe_limits(std::uint32_t nfa_states, std::uint32_t automaton_bytes, std::uint32_t kept_bytes) {
  limits = Limits();
  if (nfa_states) limits.nfa_states = nfa_states;
  if (automaton_bytes) limits.automaton_bytes = automaton_bytes;
  if (kept_bytes) limits.kept_bytes = kept_bytes;
}

/// Returns 1 if the pattern is accepted; other calls use it.
PROBE(probe_compile) std::uint32_t probe_compile(const char* pattern, std::uint32_t size) {
  error = Error();
  regex = Regex::compile({pattern, size}, &error, limits);
  message = error.text();
  return regex.has_value();
}
PROBE(probe_error) const char* probe_error() { return message.c_str(); }
PROBE(probe_error_offset) std::uint32_t probe_error_offset() { return error.offset; }

/// Sets out[i] for the first i bytes of `text`: 0 dead, 1 a match can be reached, 3 the text may also end here.
PROBE(probe_run) void probe_run(const std::uint8_t* text, std::uint32_t size, std::uint8_t* out) {
  Regex::State s = regex->initial();
  for (std::uint32_t i = 0;; i++) {
    out[i] = regex->dead(s) ? 0 : regex->accepting(s) ? 3 : 1;
    if (i == size) return;
    s = regex->append(s, text[i]);
  }
}

/// Returns the state after `text`.
PROBE(probe_state) std::uint32_t probe_state(const std::uint8_t* text, std::uint32_t size) {
  Regex::State s = regex->initial();
  for (std::uint32_t i = 0; i < size; i++) s = regex->append(s, text[i]);
  return s;
}
PROBE(probe_append) std::uint32_t probe_append(std::uint32_t state, std::uint32_t byte) {
  return regex->append(state, static_cast<std::uint8_t>(byte));
}
/// Returns the next state for each of the 256 bytes.
PROBE(probe_row) void probe_row(std::uint32_t state, std::uint32_t* out) {
  for (std::uint32_t b = 0; b < 256; b++) out[b] = regex->append(state, static_cast<std::uint8_t>(b));
}
PROBE(probe_accepting) std::uint32_t probe_accepting(std::uint32_t state) { return regex->accepting(state); }
/// Returns the forced next byte, or 256.
PROBE(probe_forced) std::uint32_t probe_forced(std::uint32_t state) {
  std::uint8_t byte = 0;
  return regex->forced_byte(state, &byte) ? byte : 256;
}
PROBE(probe_byte_classes) void probe_byte_classes(const std::uint8_t* of, std::uint32_t count) {
  std::memcpy(byte_class, of, 256);
  regex->set_byte_classes({byte_class, count});
}
PROBE(probe_loop_signature) std::uint32_t probe_loop_signature(std::uint32_t state) {
  return regex->loop_signature(state);
}
/// Explores all states. Returns the number of live states that cannot reach a match, plus live successors of the dead
/// state; 0 if the automaton is exact; 0xffffffff if there are more than `most` states.
PROBE(probe_inexact_states) std::uint32_t probe_inexact_states(std::uint32_t most) {
  std::vector<Regex::State> states{regex->initial()};
  std::unordered_map<Regex::State, std::uint32_t> number{{states[0], 0}};
  std::vector<std::vector<std::uint32_t>> sources(1);
  std::uint32_t inexact = 0;
  for (std::uint32_t b = 0; b < 256; b++) inexact += regex->append(0, static_cast<std::uint8_t>(b)) != 0;
  for (std::uint32_t at = 0; at < states.size(); at++) {
    if (states.size() > most) return 0xffffffff;
    for (std::uint32_t b = 0; b < 256; b++) {
      const Regex::State next = regex->append(states[at], static_cast<std::uint8_t>(b));
      if (regex->dead(next)) continue;
      const auto [known, added] = number.insert({next, static_cast<std::uint32_t>(states.size())});
      if (added) states.push_back(next), sources.emplace_back();
      std::vector<std::uint32_t>& from = sources[known->second];
      if (from.empty() || from.back() != at) from.push_back(at);
    }
  }
  std::vector<bool> finishes(states.size());
  std::vector<std::uint32_t> work;
  for (std::uint32_t at = 0; at < states.size(); at++)
    if (regex->accepting(states[at])) finishes[at] = true, work.push_back(at);
  while (!work.empty()) {
    const std::uint32_t at = work.back();
    work.pop_back();
    for (const std::uint32_t from : sources[at])
      if (!finishes[from]) finishes[from] = true, work.push_back(from);
  }
  for (const bool finishing : finishes) inexact += !finishing;
  return inexact;
}
PROBE(probe_loop_length) std::uint32_t probe_loop_length(std::uint32_t state) {
  return regex->loop_length(state);
}
PROBE(probe_exhausted) std::uint32_t probe_exhausted() { return regex->failure() != nullptr; }
/// Returns the state's new number, or 0 if nothing was dropped.
PROBE(probe_compact) std::uint32_t probe_compact(std::uint32_t state) {
  return regex->compact(&state) ? state : 0;
}
PROBE(probe_bytes) std::uint32_t probe_bytes() { return static_cast<std::uint32_t>(regex->bytes()); }
PROBE(probe_num_states) std::uint32_t probe_num_states() { return regex->num_states(); }

/// Returns 1 for each of the `count` characters (code points) that matches by itself.
PROBE(probe_characters) void probe_characters(std::uint32_t first, std::uint32_t count, std::uint8_t* out) {
  for (std::uint32_t i = 0; i < count; i++) {
    const std::uint32_t c = first + i;
    std::uint8_t bytes[4];
    std::uint32_t size = 0;
    const auto put = [&](std::uint32_t byte) { bytes[size++] = static_cast<std::uint8_t>(byte); };
    if (c < 0x80) {
      put(c);
    } else if (c < 0x800) {
      put(0xC0 | c >> 6), put(0x80 | (c & 63));
    } else if (c < 0x10000) {
      put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
    } else {
      put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 63)), put(0x80 | (c >> 6 & 63)), put(0x80 | (c & 63));
    }
    Regex::State s = regex->initial();
    for (std::uint32_t k = 0; k < size; k++) s = regex->append(s, bytes[k]);
    out[i] = regex->accepting(s);
  }
}
PROBE(probe_unicode_version) const char* probe_unicode_version() { return aici::regex::unicode_version(); }
