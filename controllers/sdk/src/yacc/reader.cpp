// Reads a grammar in the syntax of yacc: splits its text into words, and reads declarations and rules of them.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "syntax.hpp"

namespace aici::yacc {

namespace {

using front::hex_digit;
using lr::Associativity;
using Kind = Word::Kind;

/// The words of a grammar, one after the other.
class Words {
 public:
  Words(std::string_view text, const front::Source& places) : text_(text), places_(places) { advance(); }

  const Word& word() const { return word_; }
  /// Returns the current word and moves to the next one.
  Word take();
  bool accept(std::string_view mark);
  void expect(std::string_view mark, std::string_view where);
  [[noreturn]] void fail(std::size_t at, std::string_view problem) const { places_.fail(at, problem); }

 private:
  void advance();
  void skip_blanks();
  void quoted(char quote);
  void unescape(std::size_t at, std::string_view raw);

  std::string_view text_;
  const front::Source& places_;
  std::size_t at_ = 0;
  Word word_;
};

bool is_name(char c, bool first) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && ((c >= '0' && c <= '9') || c == '.'));
}

Word Words::take() {
  Word word = std::move(word_);
  advance();
  return word;
}

bool Words::accept(std::string_view mark) {
  if (!word_.is(mark)) return false;
  advance();
  return true;
}

void Words::expect(std::string_view mark, std::string_view where) {
  if (!accept(mark)) fail(word_.at, "`" + std::string(mark) + "` is expected " + std::string(where));
}

void Words::skip_blanks() {
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

void Words::advance() {
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
void Words::quoted(char quote) {
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

void Words::unescape(std::size_t at, std::string_view raw) {
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

bool is_symbol(const Word& word) {
  return word.kind == Kind::kName || word.kind == Kind::kKeyword || word.kind == Kind::kPattern;
}

void read_directive(Words& words, Rules& rules) {
  static constexpr std::pair<std::string_view, Associativity> kPrecedences[] = {
      {"%left", Associativity::kLeft},
      {"%right", Associativity::kRight},
      {"%nonassoc", Associativity::kNonassoc},
      {"%precedence", Associativity::kPrecedence},
  };
  const Word directive = words.take();
  if (directive.text == "%start") {
    if (words.word().kind != Kind::kName) words.fail(words.word().at, "%start needs the name of a rule");
    rules.start = words.take();
    return;
  }
  if (directive.text == "%expect") {
    const std::string digits = words.word().text;
    if (words.word().kind != Kind::kNumber ||
        std::from_chars(digits.data(), digits.data() + digits.size(), rules.expected_conflicts).ec != std::errc())
      words.fail(words.word().at, "%expect needs the number of conflicts that are expected");
    words.take();
    return;
  }
  if (directive.text == "%token") {
    while (is_symbol(words.word())) rules.tokens.push_back(words.take());
    return;
  }
  for (const auto& [name, associativity] : kPrecedences)
    if (directive.text == name) {
      PrecedenceLine line{associativity, {}};
      while (is_symbol(words.word())) line.symbols.push_back(words.take());
      if (line.symbols.empty()) words.fail(directive.at, std::string(name) + " needs terminals");
      rules.precedences.push_back(std::move(line));
      return;
    }
  words.fail(directive.at, "`" + directive.text +
                                "` is unknown; allowed are %start, %token, %left, %right, %nonassoc, %precedence and "
                                "%expect, and in rules %prec and %empty");
}

Alternative read_alternative(Words& words) {
  Alternative found;
  bool empty = false;
  for (;;) {
    const Word& word = words.word();
    if (is_symbol(word)) {
      if (empty) words.fail(word.at, "%empty stands alone");
      found.symbols.push_back(words.take());
    } else if (word.kind == Kind::kDirective && word.text == "%empty") {
      if (empty || !found.symbols.empty()) words.fail(word.at, "%empty stands alone");
      empty = true;
      words.take();
    } else if (word.kind == Kind::kDirective && word.text == "%prec") {
      words.take();
      if (!is_symbol(words.word())) words.fail(words.word().at, "%prec needs a terminal");
      found.precedence = words.take();
    } else {
      return found;
    }
  }
}

/// A larger grammar could not become a parser within the limits of time and memory.
constexpr std::size_t kMaxRules = 8192, kMaxAlternatives = 1 << 15;

/// Indices in `Rules::rules` by name.
using Index = std::map<std::string, std::size_t>;

void read_rule(Words& words, Rules& rules, Index& index) {
  if (words.word().kind != Kind::kName) words.fail(words.word().at, "the name of a rule is expected");
  Word name = words.take();
  words.expect(":", "after the name of a rule");
  Rule rule{std::move(name.text), name.at, {}};
  do {
    if (rule.alternatives.size() == kMaxAlternatives)
      words.fail(words.word().at, "the rule has more than " + std::to_string(kMaxAlternatives) + " alternatives");
    rule.alternatives.push_back(read_alternative(words));
  } while (words.accept("|"));
  words.expect(";", "at the end of a rule");
  const auto [known, added] = index.emplace(rule.name, rules.rules.size());
  if (!added) {
    for (Alternative& more : rule.alternatives) rules.rules[known->second].alternatives.push_back(std::move(more));
    return;
  }
  if (rules.rules.size() == kMaxRules)
    words.fail(rule.at, "the grammar has more than " + std::to_string(kMaxRules) + " rules");
  rules.rules.push_back(std::move(rule));
}

}  // namespace

Rules read_rules(std::string_view text, const front::Source& places) {
  Words words(text, places);
  Rules rules;
  while (words.word().kind == Kind::kDirective) read_directive(words, rules);
  words.expect("%%", "before the rules");
  Index index;
  // in yacc, code follows after a second %%
  while (words.word().kind != Kind::kEnd && !words.word().is("%%")) read_rule(words, rules, index);
  if (rules.rules.empty()) words.fail(words.word().at, "the grammar has no rules");
  return rules;
}

}  // namespace aici::yacc
