#include "source.hpp"

#include <algorithm>

#include "aici/host.hpp"
#include "../regex/unicode.hpp"

namespace aici::front {

Source::Source(std::string_view text) : text_(text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t from = at;
    if (regex::decode_utf8(text, &at) == regex::kInvalidUtf8) fail(from, "the grammar is not well-formed UTF-8");
  }
}

bool Source::accept(std::string_view what) {
  if (!next_is(what)) return false;
  at_ += what.size();
  return true;
}

char32_t Source::take_character() { return regex::decode_utf8(text_, &at_); }

bool Source::find(std::string_view what) {
  at_ = std::min(text_.find(what, at_), text_.size());
  return !at_end();
}

std::string Source::place(std::size_t at) const {
  std::size_t line = 1, column = 1;
  for (char c : text_.substr(0, at))
    if (c == '\n')
      line++, column = 1;
    else if ((c & 0xC0) != 0x80)
      column++;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

void Source::fail(std::size_t at, std::string_view problem) const {
  aici::fail(place(at) + ": " + std::string(problem));
}

void Source::fail_here(std::string_view expected) const {
  std::string found = "the end of the grammar";
  if (!at_end()) {
    std::size_t end = at_;
    regex::decode_utf8(text_, &end);
    if (is_word(text_[at_]))
      while (end < text_.size() && is_word(text_[end])) end++;
    found = text_[at_] == '\n' ? "the end of the line" : "`" + std::string(text_.substr(at_, end - at_)) + "`";
  }
  fail(at_, std::string(expected) + " is expected, not " + found);
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::uint32_t take_number(Source& source, std::uint32_t most) {
  const std::size_t from = source.at();
  std::uint64_t value = 0;
  for (; is_digit(source.peek()); source.move(1)) {
    value = 10 * value + static_cast<unsigned>(source.peek() - '0');
    if (value > most) source.fail(from, "this number is too large: at most " + std::to_string(most) + " is possible");
  }
  return static_cast<std::uint32_t>(value);
}

char32_t take_hex(Source& source, std::size_t digits, std::size_t escape) {
  char32_t value = 0;
  for (std::size_t i = 0; i < digits; i++) {
    const int digit = hex_digit(source.peek());
    if (digit < 0)
      source.fail(escape, "this escape needs " + std::to_string(digits) + " hexadecimal digits");
    value = value << 4 | static_cast<char32_t>(digit);
    source.move(1);
  }
  if (value > 0x10FFFF) source.fail(escape, "this is not a character: the last one is 10FFFF");
  return value;
}

char32_t take_scalar(Source& source, std::size_t digits, std::size_t escape) {
  const char32_t value = take_hex(source, digits, escape);
  if (!regex::is_scalar(value)) source.fail(escape, "this is half a character: a surrogate");
  return value;
}

char32_t take_utf16(Source& source, std::size_t escape) {
  const char32_t first = take_hex(source, 4, escape);
  if (regex::is_scalar(first)) return first;
  if (first < 0xDC00 && source.accept("\\u"))
    if (const char32_t second = take_hex(source, 4, escape); second >= 0xDC00 && !regex::is_scalar(second))
      return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  source.fail(escape, "this is half a character: a surrogate needs the other one after it, as in \\ud83d\\ude00");
}

void append_utf8(char32_t character, std::string* out) { regex::encode_utf8(character, out); }

}  // namespace aici::front
