// probe.cpp - the context-free engine behind plain functions, for the tests.
//
// A grammar comes as lines of words: "ignore" or the number of a rule, then an expression in reverse Polish notation.
// A number followed by "=" is that of a rule that is read anywhere, independent of the others.
//   l:HEX r:HEX e:HEX s:HEX x:HEX,HEX,..   a literal, a regex, an early regex, substrings, a regex except texts
//   n:MOST:HEX                             a regex with at most MOST characters
//   o:LEAST:MOST:ONCE:ORDERED:1!,2*,3      rules in any order, after the separator; ! is required, * repeats
//   c:RULE  q:N  a:N  p:LEAST:MOST         a call; sequence or choice of N; repetition, MOST may be empty
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "aici/cfg/parser.hpp"

#define PROBE(name) extern "C" __attribute__((export_name(#name)))

using namespace aici::cfg;
using aici::SpecialToken;

namespace {

std::optional<Parser> parser;
std::string message;
Limits limits;
std::uint8_t byte_class[256];
std::uint32_t num_classes = 0;
bool compacting = false;
std::map<std::string, std::shared_ptr<aici::regex::Regex>> regexes;

std::string unhex(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    bytes.push_back(static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1])));
  }
  return bytes;
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(by, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::uint32_t number(std::string_view text) {
  return text.empty() ? kNoLimit : static_cast<std::uint32_t>(std::strtoul(std::string(text).c_str(), nullptr, 10));
}

aici::regex::Regex compile(std::string_view hex) {
  aici::regex::Error error;
  auto regex = aici::regex::Regex::compile(unhex(hex), &error);
  if (!regex) std::abort();
  if (num_classes != 0) regex->set_byte_classes({byte_class, num_classes});
  return std::move(*regex);
}

/// Equal patterns are one regex, as in grammars of schemas.
std::shared_ptr<aici::regex::Regex> shared(std::string_view pattern) {
  std::shared_ptr<aici::regex::Regex>& known = regexes[std::string(pattern)];
  if (known == nullptr) known = std::make_shared<aici::regex::Regex>(compile(pattern));
  return known;
}

Expr terminal(Grammar& grammar, char kind, std::string_view rest) {
  if (kind == 'l') return grammar.literal(unhex(rest));
  if (kind == 'r') return grammar.regex(shared(rest));
  if (kind == 'e') return grammar.early_regex(compile(rest));
  if (kind == 's') return grammar.substring(aici::Substrings(unhex(rest), aici::Substrings::Unit::bytes));
  if (kind == 'n') {
    const auto parts = split(rest, ':');
    const auto whole = aici::cfg::Counted::make(shared(parts[2]), true);
    const auto some = whole ? whole->between(number(parts[0]), number(parts[1])) : std::nullopt;
    return some ? grammar.counted(*some) : grammar.never();
  }
  std::vector<std::string> texts;
  for (const auto one : split(rest, ',')) texts.push_back(unhex(one));
  texts.erase(texts.begin());
  return grammar.regex_except(shared(split(rest, ',')[0]), texts);
}

Expr expression(Grammar& grammar, const std::vector<Rule>& rules, std::span<const std::string_view> words) {
  std::vector<Expr> stack;
  for (const auto word : words) {
    const auto rest = word.substr(2);
    if (word[0] == 'c') {
      stack.push_back(grammar.call(rules[number(rest)]));
    } else if (word[0] == 'p') {
      const auto bounds = split(rest, ':');
      stack.back() = grammar.repeat(stack.back(), number(bounds[0]), number(bounds[1]));
    } else if (word[0] == 'o') {
      const auto fields = split(rest, ':');
      AnyOrder order{.separator = grammar.declare("separator"), .least = number(fields[0]), .most = number(fields[1])};
      grammar.define(order.separator, stack.back());
      order.repeats_count_once = fields[2] == "1";
      order.required_in_order = fields[3] == "1";
      for (const auto part : split(fields[4], ','))
        order.parts.push_back({rules[number(part)], part.back() == '!', part.back() == '*'});
      stack.back() = grammar.any_order(std::move(order));
    } else if (word[0] == 'q' || word[0] == 'a') {
      const std::size_t first = stack.size() - number(rest);
      const std::span parts(stack.data() + first, number(rest));
      const Expr made = word[0] == 'q' ? grammar.sequence(parts) : grammar.choice(parts);
      stack.resize(first);
      stack.push_back(made);
    } else {
      stack.push_back(terminal(grammar, word[0], rest));
    }
  }
  return stack.back();
}

Parser::State step(Parser::State state, std::uint8_t byte) {
  state = parser->append(state, byte);
  if (compacting && state != 0) parser->compact(&state);
  return state;
}

}  // namespace

PROBE(probe_alloc) void* probe_alloc(std::uint32_t size) { return std::malloc(size); }
PROBE(probe_free) void probe_free(void* at) { std::free(at); }

PROBE(probe_byte_classes) void probe_byte_classes(const std::uint8_t* of, std::uint32_t count) {
  std::memcpy(byte_class, of, 256);
  num_classes = count;
}

/// Sets the limits of later grammars; 0 keeps the default. With `compact`, drops all unused data after each byte.
PROBE(probe_limits)
void probe_limits(std::uint32_t places, std::uint32_t nesting, std::uint32_t threads, std::uint32_t compact) {
  limits = Limits();
  if (places) limits.places = places;
  if (nesting) limits.nesting = nesting;
  if (threads) limits.threads = threads;
  compacting = compact != 0;
  if (compacting) limits.kept_bytes = 0;
}

/// Returns 1 if the grammar is accepted; other calls use it. Rule 0 is the start.
PROBE(probe_make) std::uint32_t probe_make(const char* text, std::uint32_t size, std::uint32_t longest) {
  Grammar grammar(longest ? Lexemes::kLongest : Lexemes::kAnywhere);
  regexes.clear();
  std::vector<Rule> rules;
  const auto lines = split({text, size}, '\n');
  std::size_t most = 0;
  for (const auto line : lines)
    for (const auto word : split(line, ' '))
      if (word.starts_with("o:")) {
        for (const auto part : split(split(word, ':').back(), ',')) most = std::max<std::size_t>(most, number(part));
      } else if (word.starts_with("c:")) most = std::max<std::size_t>(most, number(word.substr(2)));
  const Lexemes usual = grammar.lexemes();
  const auto enter = [&](bool anywhere) { grammar.set_lexemes(anywhere ? Lexemes::kAnywhere : usual); };
  std::vector<bool> anywhere(lines.size() + most);
  for (const auto line : lines)
    if (const auto name = split(line, ' ')[0]; name.ends_with('=')) anywhere[number(name)] = true;
  for (std::size_t i = 0; i < anywhere.size(); i++) {
    enter(anywhere[i]);
    rules.push_back(grammar.declare("rule"));
  }
  for (const auto line : lines) {
    const auto words = split(line, ' ');
    enter(words[0].ends_with('='));
    const Expr expr = expression(grammar, rules, std::span(words).subspan(1));
    if (words[0] == "ignore")
      grammar.ignore(expr);
    else
      grammar.define(rules[number(words[0])], expr);
  }
  parser = Parser::make(std::move(grammar), rules[0], &message, limits);
  return parser.has_value();
}
PROBE(probe_error) const char* probe_error() { return message.c_str(); }

/// Sets out[i] for the first i bytes of `text`: 0 dead, 1 a text can be reached, 3 the text may also end here.
PROBE(probe_run) void probe_run(const std::uint8_t* text, std::uint32_t size, std::uint8_t* out) {
  Parser::State state = parser->initial();
  for (std::uint32_t i = 0;; i++) {
    out[i] = state == 0 ? 0 : parser->special_allowed(state, SpecialToken::eos) ? 3 : 1;
    if (i == size) return;
    state = step(state, text[i]);
  }
}
PROBE(probe_append) std::uint32_t probe_append(std::uint32_t state, std::uint32_t byte) {
  return parser->append(state, static_cast<std::uint8_t>(byte));
}
PROBE(probe_state) std::uint32_t probe_state(const std::uint8_t* text, std::uint32_t size) {
  Parser::State state = parser->initial();
  for (std::uint32_t i = 0; i < size; i++) state = step(state, text[i]);
  return state;
}
PROBE(probe_loop_signature) std::uint32_t probe_loop_signature(std::uint32_t state) {
  return parser->loop_signature(state);
}
PROBE(probe_loop_length) std::uint32_t probe_loop_length(std::uint32_t state) { return parser->loop_length(state); }

/// Returns whether a search of at most `most` steps reaches an end of the text; 2 if it exceeds them.
PROBE(probe_can_end) std::uint32_t probe_can_end(std::uint32_t state, std::uint32_t most) {
  std::vector<Parser::State> seen{state};
  std::unordered_set<Parser::State> known{state};
  for (std::size_t at = 0; at < seen.size(); at++) {
    if (at == most) return 2;
    if (parser->special_allowed(seen[at], SpecialToken::eos)) return 1;
    for (unsigned byte = 0; byte < 256; byte++) {
      const Parser::State next = parser->append(seen[at], static_cast<std::uint8_t>(byte));
      if (next != 0 && known.insert(next).second) seen.push_back(next);
    }
  }
  return 0;
}
PROBE(probe_failed) std::uint32_t probe_failed() {
  if (const char* problem = parser->failure()) message = problem;
  return parser->failure() != nullptr;
}
PROBE(probe_columns) std::uint32_t probe_columns() { return static_cast<std::uint32_t>(parser->engine().num_columns()); }
PROBE(probe_bytes) std::uint32_t probe_bytes() { return static_cast<std::uint32_t>(parser->engine().bytes()); }
