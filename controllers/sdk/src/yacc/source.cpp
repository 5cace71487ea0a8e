#include "source.hpp"

#include <cctype>

namespace aici::yacc {

namespace {

using front::hex_digit;

bool is_name(char c, bool first) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && ((c >= '0' && c <= '9') || c == '.'));
}

}  // namespace

Word Source::take() {
  Word word = std::move(word_);
  advance();
  return word;
}

bool Source::accept(std::string_view mark) {
  if (!word_.is(mark)) return false;
  advance();
  return true;
}

void Source::expect(std::string_view mark, std::string_view where) {
  if (!accept(mark)) fail(word_.at, "`" + std::string(mark) + "` is expected " + std::string(where));
}

void Source::skip_blanks() {
  while (at_ < text_.size()) {
    if (std::isspace(static_cast<unsigned char>(text_[at_]))) {
      at_++;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.substr(at_, 2) == "/*") {
      const std::size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) fail(at_, "this comment is not closed: `*/` is missing");
      at_ = end + 2;
    } else {
      return;
    }
  }
}

void Source::advance() {
  skip_blanks();
  word_ = {.at = at_};
  if (at_ == text_.size()) return;
  const char c = text_[at_];
  if (c == '"' || c == '\'') return quoted(c);
  std::size_t end = at_ + 1;
  if (is_name(c, true)) {
    word_.kind = Word::Kind::kName;
    while (end < text_.size() && is_name(text_[end], false)) end++;
  } else if (c >= '0' && c <= '9') {
    word_.kind = Word::Kind::kNumber;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') end++;
  } else if (text_.substr(at_, 2) == "%%") {
    word_.kind = Word::Kind::kMark;
    end++;
  } else if (c == '%') {
    word_.kind = Word::Kind::kDirective;
    while (end < text_.size() && (is_name(text_[end], false) || text_[end] == '-')) end++;
  } else if (c == ':' || c == '|' || c == ';') {
    word_.kind = Word::Kind::kMark;
  } else if (c == '{') {
    fail(at_, "actions are not supported: the grammar only describes text");
  } else {
    fail(at_, "a name, a quoted text, `:`, `|`, `;` or a directive such as %left is expected");
  }
  word_.text = text_.substr(at_, end - at_);
  at_ = end;
}

/// Reads a quoted word. A quote after a backslash does not end it.
void Source::quoted(char quote) {
  const std::size_t begin = at_ + 1;
  std::size_t end = begin;
  while (end < text_.size() && text_[end] != quote && text_[end] != '\n') end += text_[end] == '\\' ? 2 : 1;
  if (end >= text_.size() || text_[end] != quote) fail(at_, "this text is not closed: the quote is missing in its line");
  const std::string_view raw = text_.substr(begin, end - begin);
  if (raw.size() > 2 && raw.front() == '/' && raw.back() == '/') {
    word_.kind = Word::Kind::kPattern;
    word_.text = raw.substr(1, raw.size() - 2);
  } else {
    word_.kind = Word::Kind::kKeyword;
    unescape(begin, raw);
    if (word_.text.empty()) fail(at_, "a quoted text that is empty; write %empty for a rule without symbols");
  }
  at_ = end + 1;
}

void Source::unescape(std::size_t at, std::string_view raw) {
  static constexpr std::string_view kFrom = "ntrvfab0\\'\"/", kTo = {"\n\t\r\v\f\a\b\0\\'\"/", 12};
  for (std::size_t i = 0; i < raw.size(); i++) {
    if (raw[i] != '\\') {
      word_.text += raw[i];
      continue;
    }
    i++;
    if (const std::size_t which = kFrom.find(raw[i]); which != std::string_view::npos) {
      word_.text += kTo[which];
    } else if (raw[i] == 'x' && i + 2 < raw.size() && hex_digit(raw[i + 1]) >= 0 && hex_digit(raw[i + 2]) >= 0) {
      word_.text += static_cast<char>(hex_digit(raw[i + 1]) << 4 | hex_digit(raw[i + 2]));
      i += 2;
    } else {
      fail(at + i - 1, "unknown escape in a keyword; allowed are \\n \\t \\r \\v \\f \\a \\b \\0 \\\\ \\' \\\" \\/ "
                       "and \\x with two digits");
    }
  }
}

}  // namespace aici::yacc
