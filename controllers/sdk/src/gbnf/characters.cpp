#include "characters.hpp"

#include <cstddef>
#include <string_view>

#include "../front/patterns.hpp"

namespace aici::gbnf {

using front::Source;

namespace {

constexpr std::string_view kLetters = "nrtvfba\\\"'[]-^/", kMeanings = "\n\r\t\v\f\b\a\\\"'[]-^/";

char32_t take_character(Source& source) {
  const std::size_t at = source.at();
  if (!source.accept("\\")) return source.take_character();
  if (source.accept("x")) return front::take_scalar(source, 2, at);
  if (source.accept("u")) return front::take_scalar(source, 4, at);
  if (source.accept("U")) return front::take_scalar(source, 8, at);
  if (source.accept("0")) return U'\0';
  const std::size_t which = source.at_end() ? std::string_view::npos : kLetters.find(source.peek());
  if (which == std::string_view::npos)
    source.fail(at, "unknown escape; allowed are \\n \\r \\t \\v \\f \\b \\a \\0 \\\\ \\\" \\' \\[ \\] \\- \\^ "
                    "\\/, \\x41, \\u0041 and \\U00000041");
  source.move(1);
  return static_cast<char32_t>(kMeanings[which]);
}

}  // namespace

std::string take_gbnf_literal(Source& source) {
  const std::size_t begin = source.at();
  source.move(1);
  std::string found;
  while (!source.accept("\"")) {
    if (source.at_end() || source.peek() == '\n') source.fail(begin, "this text is not closed: its quote is missing");
    front::append_utf8(take_character(source), &found);
  }
  return found;
}

std::string take_gbnf_class(Source& source) {
  const std::size_t begin = source.at();
  source.move(1);
  std::string found = source.accept("^") ? "[^" : "[";
  const std::size_t empty = found.size();
  while (!source.accept("]")) {
    const std::size_t at = source.at();
    if (source.at_end() || source.peek() == '\n') source.fail(begin, "this class is not closed: `]` is missing");
    const char32_t low = take_character(source);
    found += front::pattern_of(low);
    if (source.peek() != '-' || source.peek(1) == ']') continue;
    source.move(1);
    if (source.at_end() || source.peek() == '\n') source.fail(begin, "this class is not closed: `]` is missing");
    const char32_t high = take_character(source);
    if (high < low) source.fail(at, "this range is empty: its first character comes after its last");
    found += '-';
    found += front::pattern_of(high);
  }
  if (found.size() == empty) source.fail(begin, "this class is empty; any character is `.`");
  return found + "]";
}

}  // namespace aici::gbnf
