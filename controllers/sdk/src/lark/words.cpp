#include "words.hpp"

#include <algorithm>
#include <cstddef>

#include "../front/patterns.hpp"

namespace aici::lark {

using front::Source;

namespace {

constexpr std::string_view kLetters = "nrtvfb\\\"/", kMeanings = "\n\r\t\v\f\b\\\"/";
constexpr std::string_view kFlags = "imsxu";

/// Maximum length of the text between the name of a rule and its colon.
constexpr std::size_t kMaxAttributes = 400;

bool is_surrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }

char32_t take_escape(Source& source, std::size_t at) {
  if (source.accept("x")) return front::take_hex(source, 2, at);
  if (source.accept("U")) return front::take_scalar(source, 8, at);
  if (source.accept("u")) {
    const char32_t first = front::take_hex(source, 4, at);
    if (!is_surrogate(first)) return first;
    if (first < 0xDC00 && source.accept("\\u"))
      if (const char32_t second = front::take_hex(source, 4, at); second >= 0xDC00 && is_surrogate(second))
        return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    source.fail(at, "this is half a character: a surrogate needs the other one behind it, as in \\ud83d\\ude00");
  }
  const std::size_t which = source.at_end() ? std::string_view::npos : kLetters.find(source.peek());
  if (which == std::string_view::npos)
    source.fail(at, "unknown escape in a text; allowed are \\n \\r \\t \\v \\f \\b \\\\ \\\" \\/, \\x41, "
                    "\\u0041 and \\U00000041");
  source.move(1);
  return static_cast<char32_t>(kMeanings[which]);
}

}  // namespace

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

}  // namespace aici::lark
