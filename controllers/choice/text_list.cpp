#include "text_list.hpp"

#include "aici/host.hpp"

namespace {

std::string decimal(std::size_t number) {
  std::string digits;
  do digits.insert(digits.begin(), static_cast<char>('0' + number % 10));
  while (number /= 10);
  return digits;
}

void append_utf8(std::string* text, std::uint32_t c) {
  const auto put = [&](std::uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (c < 0x80) return put(c);
  if (c < 0x800) return put(0xC0 | c >> 6), put(0x80 | (c & 0x3F));
  if (c < 0x10000) return put(0xE0 | c >> 12), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
  put(0xF0 | c >> 18), put(0x80 | (c >> 12 & 0x3F)), put(0x80 | (c >> 6 & 0x3F)), put(0x80 | (c & 0x3F));
}

/// A JSON list of strings and nothing else.
class JsonList {
 public:
  explicit JsonList(std::string_view text) : text_(text) {}

  std::vector<std::string> read() {
    std::vector<std::string> strings;
    expect('[', "a list");
    if (peek() == ']') {
      at_++;
    } else {
      do strings.push_back(string());
      while (separator());
    }
    if (peek() != -1) fail("something follows the list");
    return strings;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    std::string message = "the list of choices is not JSON: ";
    aici::fail(message.append(what).append(" at byte ").append(decimal(at_)));
  }

  /// The next character that is no space, or -1.
  int peek() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) at_++;
    return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1;
  }

  void expect(char c, std::string_view what) {
    if (peek() != c) fail(std::string(what) + " expected");
    at_++;
  }

  bool separator() {
    const int c = peek();
    if (c != ',' && c != ']') fail("`,` or `]` expected");
    at_++;
    return c == ',';
  }

  std::string string() {
    expect('"', "a string");
    std::string text;
    for (;;) {
      if (at_ == text_.size()) fail("the string does not end");
      const char c = text_[at_];
      if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
      at_++;
      if (c == '"') return text;
      if (c == '\\')
        escape(&text);
      else
        text.push_back(c);
    }
  }

  void escape(std::string* text) {
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    if (const std::size_t which = kNames.find(c); c != '\0' && which != std::string_view::npos) {
      text->push_back(kMeanings[which]);
      at_++;
      return;
    }
    if (c != 'u') fail("an unknown escape");
    std::uint32_t code = four_digits();
    if (code >= 0xDC00 && code < 0xE000) fail("a lone surrogate");
    if (code >= 0xD800 && code < 0xDC00) {
      if (!text_.substr(at_).starts_with("\\u")) fail("a lone surrogate");
      at_++;
      const std::uint32_t low = four_digits();
      if (low < 0xDC00 || low >= 0xE000) fail("a lone surrogate");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(text, code);
  }

  /// The number after `\u`, of which the `u` is next.
  std::uint32_t four_digits() {
    std::uint32_t number = 0;
    at_++;
    for (int i = 0; i < 4; i++, at_++) {
      const char c = at_ < text_.size() ? text_[at_] : '\0';
      const char small = static_cast<char>(c | 0x20);
      if (c >= '0' && c <= '9')
        number = number * 16 + static_cast<std::uint32_t>(c - '0');
      else if (small >= 'a' && small <= 'f')
        number = number * 16 + static_cast<std::uint32_t>(small - 'a' + 10);
      else
        fail("four hexadecimal digits expected");
    }
    return number;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<std::string> read_text_list(std::string_view argument) {
  if (argument.starts_with('[')) return JsonList(argument).read();
  std::vector<std::string> lines;
  while (!argument.empty()) {
    const std::string_view line = argument.substr(0, argument.find('\n'));
    argument.remove_prefix(line.size() == argument.size() ? line.size() : line.size() + 1);
    if (!line.empty()) lines.emplace_back(line);
  }
  return lines;
}
