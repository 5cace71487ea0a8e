// Texts of arguments: lines, choices, JSON, and the check of UTF-8.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aici/choices.hpp"
#include "aici/host.hpp"
#include "aici/json.hpp"
#include "aici/lines.hpp"
#include "aici/utf8.hpp"
#include "../regex/unicode.hpp"

namespace aici {

std::size_t utf8_length(std::string_view text) {
  for (std::size_t at = 0, start = 0; at < text.size(); start = at)
    if (regex::decode_utf8(text, &at) == regex::kInvalidUtf8) return start;
  return text.size();
}

std::vector<std::string> lines(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    found.emplace_back(line);
    text.remove_prefix(line.size() == text.size() ? line.size() : line.size() + 1);
  }
  return found;
}

Choices::Choices(std::span<const std::string> texts) : texts_(texts.begin(), texts.end()), nodes_(1) {
  for (const std::string& text : texts_) add(text);
}

void Choices::add(const std::string& text) {
  State at = 0;
  for (char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    State next = child(at, byte);
    if (next == kNone) {
      next = static_cast<State>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[at].first_child, .byte = byte});
      nodes_[at].first_child = next;
    }
    at = next;
  }
  nodes_[at].may_end = true;
}

bool Choices::forced_byte(State state, std::uint8_t* byte) const {
  const Node& node = nodes_[state];
  if (node.may_end || node.first_child == kNone || nodes_[node.first_child].sibling != kNone) return false;
  *byte = nodes_[node.first_child].byte;
  return true;
}

namespace {

void append_decimal(std::string* out, std::size_t number) {
  char digits[20];
  std::size_t first = sizeof digits;
  do digits[--first] = static_cast<char>('0' + number % 10);
  while (number /= 10);
  out->append(digits + first, sizeof digits - first);
}

}  // namespace

void JsonReader::fail(std::string_view problem) const {
  std::string message(what_);
  message.append(" is not JSON: ").append(problem).append(" at byte ");
  append_decimal(&message, at_);
  aici::fail(message);
}

int JsonReader::peek() {
  while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) at_++;
  return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : -1;
}

bool JsonReader::accept(char c) {
  if (peek() != c) return false;
  at_++;
  return true;
}

void JsonReader::expect(char c, std::string_view name) {
  if (!accept(c)) fail(std::string(name).append(" expected"));
}

bool JsonReader::more(char close) {
  if (accept(',')) return true;
  if (!accept(close)) fail(std::string("`,` or `").append(1, close).append("` expected"));
  return false;
}

std::uint32_t JsonReader::natural(std::uint32_t most) {
  peek();
  const std::size_t first = at_;
  std::uint32_t value = 0;
  for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value <= most; at_++)
    value = value * 10 + static_cast<std::uint32_t>(text_[at_] - '0');
  const bool number = at_ != first && value <= most && (at_ == first + 1 || text_[first] != '0');
  at_ = number ? at_ : first;
  if (!number) {
    std::string problem("a whole number up to ");
    append_decimal(&problem, most);
    fail(problem.append(" expected"));
  }
  return value;
}

std::string_view JsonReader::value() {
  const int begin = peek();
  const std::size_t first = at_;
  std::size_t depth = 0;
  for (int c = begin; at_ == first || depth > 0; c = peek()) {
    const bool inside = depth > 0;
    if (c == '"') {
      string();
    } else if (c == '{' || c == '[') {
      depth++, at_++;
    } else if (inside && (c == '}' || c == ']')) {
      depth--, at_++;
    } else if (inside && (c == ',' || c == ':')) {
      at_++;
    } else {
      const std::size_t end = std::min(text_.find_first_of(" \t\r\n,:]}[{\"", at_), text_.size());
      if (end == at_) fail("a value expected");
      at_ = end;
    }
  }
  return text_.substr(first, at_ - first);
}

void JsonReader::end() {
  if (peek() != -1) fail("unexpected text after the end");
}

std::string JsonReader::string() {
  expect('"', "a string");
  std::string out;
  for (;;) {
    if (at_ == text_.size()) fail("the string does not end");
    const char c = text_[at_];
    if (static_cast<unsigned char>(c) < 0x20) fail("a control character in a string");
    at_++;
    if (c == '"') return out;
    if (c == '\\')
      escape(&out);
    else
      out.push_back(c);
  }
}

void JsonReader::escape(std::string* out) {
  const char c = at_ < text_.size() ? text_[at_] : '\0';
  static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  if (const std::size_t which = kNames.find(c); c != '\0' && which != std::string_view::npos) {
    out->push_back(kMeanings[which]);
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
  regex::encode_utf8(code, out);
}

/// Reads the number after `\u`; the `u` is the next byte.
std::uint32_t JsonReader::four_digits() {
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

std::optional<std::string> tool_arguments(std::string_view answer, std::string_view name) {
  JsonReader json(answer, "the list of calls");
  json.expect('{', "an object");
  if (json.string() != "value") return std::nullopt;  // an error
  json.expect(':', "`:`");
  json.expect('[', "a list");
  if (json.accept(']')) return std::nullopt;
  do {
    json.expect('{', "a call");
    std::string found;
    std::string_view schema = "null";
    do {
      const std::string key = json.string();
      json.expect(':', "`:`");
      if (key == "name")
        found = json.string();
      else if (const std::string_view text = json.value(); key == "schema")
        schema = text;
    } while (json.more('}'));
    if (found == name) return schema == "null" ? std::nullopt : std::optional<std::string>(schema);
  } while (json.more(']'));
  return std::nullopt;
}

}  // namespace aici
