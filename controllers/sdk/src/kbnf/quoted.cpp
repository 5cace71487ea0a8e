#include "quoted.hpp"

#include <cstdint>
#include <string_view>

namespace aici::kbnf {

using front::Source;

namespace {

constexpr std::string_view kLetters = "nrtvfb\\'\"/", kMeanings = "\n\r\t\v\f\b\\'\"/";

bool is_octal(char c) { return c >= '0' && c <= '7'; }
bool is_surrogate(char32_t c) { return c >= 0xD800 && c < 0xE000; }

/// Reads an escape after \u: four digits, or any number of digits in braces. Two surrogates are one character.
char32_t take_unicode(Source& source, std::size_t escape) {
  if (source.accept("{")) {
    char32_t value = 0;
    if (source.peek() == '}') source.fail(escape, "this escape needs hexadecimal digits between its braces");
    while (!source.accept("}")) {
      const int digit = front::hex_digit(source.peek());
      if (digit < 0) source.fail(escape, "this escape needs hexadecimal digits and a closing brace");
      value = value << 4 | static_cast<char32_t>(digit);
      if (value > 0x10FFFF) source.fail(escape, "this is not a character: the last one is 10FFFF");
      source.move(1);
    }
    if (is_surrogate(value)) source.fail(escape, "this is half a character: a surrogate");
    return value;
  }
  const char32_t first = front::take_hex(source, 4, escape);
  if (!is_surrogate(first)) return first;
  if (first < 0xDC00 && source.accept("\\u")) {
    const char32_t second = front::take_hex(source, 4, escape);
    if (second >= 0xDC00 && second < 0xE000) return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }
  source.fail(escape, "this is half a character: a surrogate needs the other one behind it, as in \\ud83d\\ude00");
}

/// Reads up to three octal digits, at most 377.
char32_t take_octal(Source& source) {
  char32_t value = 0;
  for (int i = 0; i < 3 && is_octal(source.peek()) && value < 32; i++, source.move(1))
    value = value << 3 | static_cast<char32_t>(source.peek() - '0');
  return value;
}

void take_escape(Source& source, bool is_pattern, std::string* out) {
  const std::size_t escape = source.at();
  source.move(1);
  const char c = source.peek();
  if (const std::size_t which = kLetters.find(c); which != std::string_view::npos && !source.at_end()) {
    source.move(1);
    *out += kMeanings[which];
  } else if (is_octal(c)) {
    front::append_utf8(take_octal(source), out);
  } else if (source.accept("x")) {
    front::append_utf8(front::take_hex(source, 2, escape), out);
  } else if (source.accept("u")) {
    front::append_utf8(take_unicode(source, escape), out);
  } else if (is_pattern && !source.at_end()) {
    *out += '\\';
  } else {
    source.fail(escape,
                "unknown escape in a text; allowed are \\n \\r \\t \\v \\f \\b \\0 \\\\ \\' \\\" \\/, octal "
                "numbers, \\x41, \\u0041 and \\u{41}");
  }
}

}  // namespace

Quoted take_quoted(Source& source, bool is_pattern) {
  const std::size_t begin = source.at();
  const char quote = source.peek();
  source.move(1);
  Quoted found;
  while (source.peek() != quote) {
    const std::size_t from = source.at();
    if (source.at_end()) source.fail(begin, "this text is not closed: its quote is missing");
    if (source.peek() == '\\') {
      take_escape(source, is_pattern, &found.text);
    } else {
      found.text += source.peek();
      source.move(1);
    }
    found.from.resize(found.text.size(), from);
  }
  found.from.push_back(source.at());
  source.move(1);
  return found;
}

}  // namespace aici::kbnf
