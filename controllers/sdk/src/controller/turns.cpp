// The section `turns` of the vocabulary image: docs/vocabulary.md has its layout.
#include "aici/turns.hpp"

#include <algorithm>
#include <span>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"

namespace aici {

namespace {

constexpr std::uint32_t kRoles = 4, kForms = kRoles * kRoles, kProblem = kForms + 4, kMarks = kForms + 5;
enum Form : std::uint32_t { kStripStart = 1, kStripEnd = 2, kJson = 4 };
enum Kind : std::uint32_t { kText = 0, kToken = 1, kName = 2 };

std::uint32_t number_of(Role role) { return static_cast<std::uint32_t>(role); }

std::string_view text_at(const std::uint32_t* item) {
  return {reinterpret_cast<const char*>(item + 1), *item >> 2};
}

/// Returns the number of bytes of the blank at the start of a text, or, with `at_end`, at its end: of what Python's
/// str.strip removes.
std::size_t blank(std::string_view text, bool at_end) {
  static constexpr std::string_view kBlanks[] = {
      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
      "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
  if (text.empty()) return 0;
  const char edge = at_end ? text.back() : text.front();
  if (edge == ' ' || (edge >= 9 && edge <= 13) || (edge >= 28 && edge <= 31)) return 1;
  for (std::string_view each : kBlanks)
    if (at_end ? text.ends_with(each) : text.starts_with(each)) return each.size();
  return 0;
}

void append_json(std::string* out, std::string_view text) {
  static constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt", kDigits = "0123456789abcdef";
  for (char c : text) {
    const std::size_t at = kEscaped.find(c);
    const auto byte = static_cast<unsigned char>(c);
    if (at != std::string_view::npos)
      *out += '\\', *out += kLetters[at];
    else if (byte < 32)
      *out += "\\u00", *out += kDigits[byte >> 4], *out += kDigits[byte & 15];
    else
      *out += c;
  }
}

void append_tokens(std::vector<TokenId>* out, std::string_view text) {
  const std::vector<TokenId> tokens = tokenize(text);
  if (tokens.empty() && !text.empty()) fail("the model's vocabulary has no tokens for a message of the chat");
  for (TokenId token : tokens) {
    // a control token of the template, in a content: cut after its first character, it is text
    const std::string_view bytes = vocabulary().token(token);
    std::size_t first = 1;
    while (first < bytes.size() && (bytes[first] & 0xc0) == 0x80) first++;
    if (first < bytes.size() && is_control(token))
      append_tokens(out, bytes.substr(0, first)), append_tokens(out, bytes.substr(first));
    else
      out->push_back(token);
  }
}

}  // namespace

std::string_view turns_problem() {
  const std::span<const std::uint32_t> words = vocabulary().turns();
  if (words.empty()) return "the model has no chat template, or the engine has not sent it";
  return words[kProblem] == 0 ? std::string_view() : text_at(&words[words[kProblem]]);
}

bool has_turn(Role before, Role after) {
  const std::span<const std::uint32_t> words = vocabulary().turns();
  return !words.empty() && words[number_of(before) * kRoles + number_of(after)] != 0;
}

bool is_control(TokenId token) {
  if (vocabulary().is_special(token)) return true;
  const std::span<const std::uint32_t> words = vocabulary().turns();
  if (words.empty()) return false;
  const auto marks = words.subspan(words[kMarks] + 1, words[words[kMarks]]);
  return std::find(marks.begin(), marks.end(), token) != marks.end();
}

void TurnText::between(Role before, Role after, std::string_view tool) {
  if (!has_turn(before, after)) return;
  const std::span<const std::uint32_t> words = vocabulary().turns();
  const std::uint32_t* at = &words[words[number_of(before) * kRoles + number_of(after)]];
  for (std::uint32_t left = *at++; left != 0; left--) {
    const std::uint32_t value = *at >> 2;
    switch (*at & 3) {
      case kText:
        open_ += text_at(at);
        at += (value + 3) / 4;
        break;
      case kName:
        open_ += tool;
        break;
      default:
        tokenize_open();
        settled_.push_back(value);
    }
    at++;
  }
}

void TurnText::content(Role role, std::string_view text) {
  const std::span<const std::uint32_t> words = vocabulary().turns();
  const std::uint32_t form = words.empty() ? 0 : words[kForms + number_of(role)];
  if ((form & kJson) != 0) return append_json(&open_, text);
  while ((form & kStripStart) != 0 && blank(text, false) != 0) text.remove_prefix(blank(text, false));
  while ((form & kStripEnd) != 0 && blank(text, true) != 0) text.remove_suffix(blank(text, true));
  open_ += text;
}

void TurnText::tokenize_open() {
  append_tokens(&settled_, open_);
  open_.clear();
}

std::vector<TokenId> TurnText::tokens() {
  tokenize_open();
  return settled_;
}

}  // namespace aici
