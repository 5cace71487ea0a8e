// Reads the words of Lark: names, texts, patterns, parameters of rules, and values in braces.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/json.hpp"
#include "../front/rules.hpp"
#include "syntax.hpp"

namespace aici::lark {

using front::Source;

void skip_lark_blanks(Source& source) {
  for (;;) {
    const char c = source.peek();
    if (c == ' ' || (c >= '\t' && c <= '\r'))
      source.move(1);
    else if (c == '#' || source.next_is("//"))
      source.find("\n");
    else
      return;
  }
}

void skip_lark_spaces(Source& source) {
  while (source.peek() == ' ' || source.peek() == '\t') source.move(1);
}

std::string_view take_lark_name(Source& source) {
  const std::size_t from = source.at();
  const auto goes_on = [&](char c) {
    return front::is_letter(c) || c == '_' ||
           (source.at() != from && (front::is_digit(c) || (c == '-' && source.peek(1) != '>')));
  };
  while (goes_on(source.peek())) source.move(1);
  return source.since(from);
}

namespace {

/// Maximum length of the text between the name of a rule and its colon.
constexpr std::size_t kMaxAttributes = 400;

/// Moves to the `]` that closes a list of attributes; a text or a pattern in it may contain others.
void skip_attributes(Source& source) {
  while (source.peek() != ']' && !source.at_end()) {
    const char c = source.peek();
    source.move(1);
    if (c != '"' && c != '/') continue;
    while (source.peek() != c && source.peek() != '\n' && !source.at_end()) source.move(source.peek() == '\\' ? 2 : 1);
    source.move(1);
  }
}

}  // namespace

bool at_lark_definition(Source& source) {
  const std::size_t here = source.at();
  while (source.peek() == '?' || source.peek() == '!') source.move(1);
  const bool named = !take_lark_name(source).empty();
  const std::size_t from = source.at();
  bool found = false;
  source.accept("::_");
  while (named && !source.at_end() && source.at() - from < kMaxAttributes) {
    const char c = source.peek();
    if ((found = c == ':' && source.peek(1) != ':')) break;
    const bool blank = c == ' ' || c == '\t', priority = c == '.' && source.peek(1) != '.';
    if (c == '[')
      skip_attributes(source);
    else if (c == '{')
      source.find("}");
    else if (!blank && !priority && !front::is_digit(c) && c != '-')
      break;
    source.move(1);
  }
  source.go_to(here);
  return found;
}

bool at_lark_directive(const Source& source) {
  constexpr std::string_view kInBodies[] = {"%json", "%regex", "%if", "%lark"};
  return source.peek() == '%' && std::ranges::none_of(kInBodies, [&](auto word) { return source.next_is(word); });
}

namespace {

constexpr std::string_view kLetters = "nrtvfb\\\"/", kMeanings = "\n\r\t\v\f\b\\\"/";

char32_t take_escape(Source& source, std::size_t at) {
  if (source.accept("x")) return front::take_hex(source, 2, at);
  if (source.accept("U")) return front::take_scalar(source, 8, at);
  if (source.accept("u")) return front::take_utf16(source, at);
  const std::size_t which = source.at_end() ? std::string_view::npos : kLetters.find(source.peek());
  if (which == std::string_view::npos)
    source.fail(at, "unknown escape in a text; allowed are \\n \\r \\t \\v \\f \\b \\\\ \\\" \\/, \\x41, "
                    "\\u0041 and \\U00000041");
  source.move(1);
  return static_cast<char32_t>(kMeanings[which]);
}

}  // namespace

std::string take_lark_text(Source& source) {
  const std::size_t begin = source.at();
  source.move(1);
  std::string found;
  while (!source.accept("\"")) {
    const std::size_t at = source.at();
    if (source.at_end() || source.peek() == '\n') source.fail(begin, "this text is not closed: its quote is missing");
    front::append_utf8(source.accept("\\") ? take_escape(source, at) : source.take_character(), &found);
  }
  return found;
}

std::string take_lark_pattern(Source& source) {
  const std::size_t begin = source.at();
  source.move(1);
  const std::size_t inside = source.at();
  while (source.peek() != '/') {
    if (source.at_end() || source.peek() == '\n') source.fail(begin, "this pattern is not closed: `/` is missing");
    source.move(source.peek() == '\\' && source.peek(1) != '\n' ? 2 : 1);
  }
  const std::string pattern(source.since(inside));
  source.move(1);
  const std::size_t at = source.at();
  while (front::is_letter(source.peek())) source.move(1);
  static constexpr std::string_view kFlags = "imsxu";
  const std::string flags(source.since(at));
  if (const std::size_t bad = flags.find_first_not_of(kFlags); bad != std::string::npos)
    source.fail(at + bad, std::string("the flag `") + flags[bad] + "` is unknown; allowed are i, m, s, x and u");
  // with the flag x, a comment extends to the end of its line
  const std::string whole =
      "(?" + flags + ":" + pattern + (flags.find('x') == std::string::npos ? ")" : "\n)");
  const std::size_t before = 3 + flags.size();
  const auto place = [&](std::size_t offset) {
    return offset < before ? begin : std::min(inside + offset - before, at - 1);
  };
  // first without our group, since a surplus parenthesis must not close that
  front::read_pattern(source, pattern, front::Texts::kAll, [&](std::size_t offset) { return inside + offset; });
  front::read_pattern(source, whole, front::Texts::kAll, place);
  return whole;
}

std::string_view take_lark_object(Source& source) {
  skip_lark_blanks(source);
  const std::size_t begin = source.at();
  if (source.peek() != '{') source.fail_here("an object in braces");
  std::size_t depth = 0;
  do {
    const char c = source.peek();
    if (source.at_end()) source.fail(begin, "this object is not closed: `}` is missing");
    if (c == '{') depth++;
    if (c == '}') depth--;
    source.move(1);
    if (c != '"') continue;
    while (source.peek() != '"' && !source.at_end()) source.move(source.peek() == '\\' ? 2 : 1);
    source.move(1);
  } while (depth > 0);
  return source.since(begin);
}

std::string_view take_lark_grammar(Source& source) {
  skip_lark_blanks(source);
  const std::size_t begin = source.at();
  if (!source.accept("{")) source.fail_here("a grammar in braces");
  for (std::size_t depth = 1; depth > 0; skip_lark_blanks(source)) {
    const char c = source.peek();
    if (source.at_end()) source.fail(begin, "this grammar is not closed: `}` is missing");
    source.move(1);
    if (c == '{') depth++;
    if (c == '}' && --depth == 0) break;
    if (c != '"' && c != '/') continue;
    while (source.peek() != c && source.peek() != '\n' && !source.at_end()) source.move(source.peek() == '\\' ? 2 : 1);
    source.move(1);
  }
  return source.since(begin + 1).substr(0, source.at() - begin - 2);
}

std::string_view take_lark_schema(Source& source) {
  skip_lark_blanks(source);
  for (const std::string_view word : {"true", "false"})
    if (source.accept(word)) return source.since(source.at() - word.size());
  if (source.peek() != '{') source.fail_here("a schema, which is an object in braces,");
  return take_lark_object(source);
}

namespace {

/// Words consist of letters, digits, underscores and characters beyond ASCII; all other characters stand alone.
std::vector<std::string> cut_chunks(const std::string& text, bool words) {
  std::vector<std::string> chunks;
  bool in_word = false;
  front::Source rest(text);
  while (!rest.at_end()) {
    const std::size_t from = rest.at();
    const char32_t c = rest.take_character();
    const bool is_word = words && (c >= 0x80 || front::is_word(static_cast<char>(c)));
    if (is_word && in_word)
      chunks.back().append(rest.since(from));
    else
      chunks.emplace_back(rest.since(from));
    in_word = is_word;
  }
  return chunks;
}

}  // namespace

bool read_chunks(const front::Source& source, std::string_view object, std::size_t at,
                 std::vector<std::string>* chunks) {
  const std::string what = "%regex in " + source.place(at);
  JsonReader json(object, what);
  json.expect('{', "an object");
  const std::string key = json.string();
  json.expect(':', "a colon");
  if (key == "substring_chars" || key == "substring_words") {
    *chunks = cut_chunks(json.string(), key == "substring_words");
  } else if (key == "substring_chunks") {
    json.expect('[', "a list of texts");
    if (!json.accept(']')) {
      do chunks->push_back(json.string());
      while (json.more(']'));
    }
  } else {
    source.fail(at, "%regex has one of substring_chars, substring_words and substring_chunks, not " + key);
  }
  json.expect('}', "the end of the object: it has one member");
  json.end();
  return key == "substring_chars";
}

namespace {

/// Maximum nesting of and(), or() and not(). The reader recurses.
constexpr unsigned kMaxNested = 32;

/// Returns a number whose `count` lowest bits are set.
std::uint64_t low_bits(unsigned count) { return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1; }

std::uint64_t bits_of(std::uint64_t p, unsigned x, unsigned y) { return p >> x & low_bits(y - x); }

void expect(Source& source, std::string_view what) {
  skip_lark_spaces(source);
  if (!source.accept(what)) source.fail_here("`" + std::string(what) + "`");
  skip_lark_spaces(source);
}

/// Reads a number in decimal or, after 0x, in hexadecimal.
std::uint64_t take_value(Source& source) {
  skip_lark_spaces(source);
  const std::size_t at = source.at();
  const std::uint64_t base = source.accept("0x") ? 16 : 10;
  const std::size_t from = source.at();
  std::uint64_t value = 0;
  for (;; source.move(1)) {
    const int digit = front::hex_digit(source.peek());
    if (digit < 0 || static_cast<std::uint64_t>(digit) >= base) break;
    if (value > (~std::uint64_t{0} - static_cast<std::uint64_t>(digit)) / base)
      source.fail(at, "this number is too large: a parameter has 64 bits");
    value = value * base + static_cast<std::uint64_t>(digit);
  }
  if (source.at() == from) source.fail_here("a number");
  return value;
}

unsigned take_bit(Source& source, unsigned most) {
  skip_lark_spaces(source);
  const std::size_t at = source.at();
  const std::uint64_t bit = take_value(source);
  if (bit > most) source.fail(at, "a parameter has the bits 0 to 63");
  return static_cast<unsigned>(bit);
}

/// Reads [x:y], or `_` for all bits.
void take_range(Source& source, unsigned* x, unsigned* y) {
  skip_lark_spaces(source);
  if (source.accept("_")) return;
  const std::size_t at = source.at();
  expect(source, "[");
  *x = take_bit(source, 63);
  expect(source, ":");
  *y = take_bit(source, 64);
  expect(source, "]");
  if (*y <= *x) source.fail(at, "this range has no bits: its end must be above its start");
}

LarkCondition read_condition(Source& source, unsigned nested);

/// Reads the arguments of and(), or() and not().
void read_parts(Source& source, LarkCondition& made, std::size_t count, unsigned nested) {
  for (std::size_t i = 0; i < count; i++) {
    if (i > 0) expect(source, ",");
    made.parts.push_back(read_condition(source, nested + 1));
  }
}

LarkCondition inverse(LarkCondition condition) {
  return {.kind = LarkCondition::Kind::kNot, .parts = {std::move(condition)}};
}

/// Reads the arguments of a comparison, such as eq([0:3], 5). `name` has no bit_count_.
LarkCondition read_comparison(Source& source, std::size_t at, std::string_view name, bool counts) {
  using Kind = LarkCondition::Kind;
  constexpr std::pair<std::string_view, std::pair<Kind, bool>> kNames[] = {
      {"eq", {Kind::kEqual, false}}, {"ne", {Kind::kEqual, true}}, {"lt", {Kind::kLess, false}},
      {"ge", {Kind::kLess, true}},   {"gt", {Kind::kMore, false}}, {"le", {Kind::kMore, true}},
  };
  for (const auto& [known, meaning] : kNames) {
    if (name != known) continue;
    LarkCondition made{.kind = meaning.first, .counts = counts};
    take_range(source, &made.x, &made.y);
    expect(source, ",");
    made.value = take_value(source);
    return meaning.second ? inverse(std::move(made)) : made;
  }
  source.fail(at, "this condition is unknown; there are true, bit_set(k), bit_clear(k), is_ones([x:y]), is_zeros([x:y]), "
                  "eq, ne, lt, le, gt and ge([x:y], n), the same after bit_count_, and(c, c), or(c, c) and not(c)");
}

LarkCondition read_condition(Source& source, unsigned nested) {
  using Kind = LarkCondition::Kind;
  skip_lark_spaces(source);
  const std::size_t at = source.at();
  if (nested > kMaxNested) source.fail(at, "conditions are nested deeper than " + std::to_string(kMaxNested));
  std::string_view name = take_lark_name(source);
  skip_lark_spaces(source);
  if (name == "true") {
    if (source.accept("(")) expect(source, ")");
    return {};
  }
  LarkCondition made;
  expect(source, "(");
  if (name == "and" || name == "or") {
    made.kind = name == "and" ? Kind::kBoth : Kind::kEither;
    read_parts(source, made, 2, nested);
  } else if (name == "not") {
    made.kind = Kind::kNot;
    read_parts(source, made, 1, nested);
  } else if (name == "bit_set" || name == "bit_clear") {
    const unsigned bit = take_bit(source, 63);
    made = {.kind = Kind::kEqual, .x = bit, .y = bit + 1, .value = name == "bit_set"};
  } else if (name == "is_ones" || name == "is_zeros") {
    made.kind = Kind::kEqual;
    take_range(source, &made.x, &made.y);
    if (name == "is_ones") made.value = low_bits(made.y - made.x);
  } else {
    constexpr std::string_view kCounts = "bit_count_";
    const bool counts = name.starts_with(kCounts);
    made = read_comparison(source, at, counts ? name.substr(kCounts.size()) : name, counts);
  }
  expect(source, ")");
  return made;
}

}  // namespace

std::uint64_t LarkFunction::apply(std::uint64_t p) const {
  const std::uint64_t now = bits_of(p, x, y), one = std::uint64_t{1} << x;
  switch (kind) {
    case Kind::kValue: return value;
    case Kind::kSame: return p;
    case Kind::kAnd: return p & value;
    case Kind::kOr: return p | value;
    case Kind::kIncrease: return now == low_bits(y - x) ? p : p + one;
    case Kind::kDecrease: return now == 0 ? p : p - one;
  }
  return p;
}

bool LarkCondition::holds(std::uint64_t p) const {
  const std::uint64_t bits = bits_of(p, x, y);
  const std::uint64_t now = counts ? static_cast<std::uint64_t>(std::popcount(bits)) : bits;
  switch (kind) {
    case Kind::kTrue: return true;
    case Kind::kEqual: return now == value;
    case Kind::kLess: return now < value;
    case Kind::kMore: return now > value;
    case Kind::kNot: return !parts[0].holds(p);
    case Kind::kBoth: return parts[0].holds(p) && parts[1].holds(p);
    case Kind::kEither: return parts[0].holds(p) || parts[1].holds(p);
  }
  return true;
}

LarkFunction read_lark_function(Source& source) {
  using Kind = LarkFunction::Kind;
  const std::size_t at = source.at();
  if (front::is_digit(source.peek())) return {.value = take_value(source)};
  const std::string_view name = take_lark_name(source);
  if (name == "_") return {.kind = Kind::kSame};
  LarkFunction made;
  expect(source, "(");
  if (name == "set_bit") {
    made = {.kind = Kind::kOr, .value = std::uint64_t{1} << take_bit(source, 63)};
  } else if (name == "clear_bit") {
    made = {.kind = Kind::kAnd, .value = ~(std::uint64_t{1} << take_bit(source, 63))};
  } else if (name == "bit_and" || name == "bit_or") {
    made = {.kind = name == "bit_and" ? Kind::kAnd : Kind::kOr, .value = take_value(source)};
  } else if (name == "incr" || name == "decr") {
    made.kind = name == "incr" ? Kind::kIncrease : Kind::kDecrease;
    take_range(source, &made.x, &made.y);
  } else {
    source.fail(at, "a parameter is a number, `_` for that of this rule, set_bit(k), clear_bit(k), bit_and(n), bit_or(n), "
                    "incr([x:y]) or decr([x:y])");
  }
  expect(source, ")");
  return made;
}

LarkCondition read_lark_condition(Source& source) { return read_condition(source, 0); }

}  // namespace aici::lark
