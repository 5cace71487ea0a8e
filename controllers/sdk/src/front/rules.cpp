#include "rules.hpp"

#include <algorithm>

#include "../regex/unicode.hpp"
#include "aici/host.hpp"
#include "aici/json_schema/schema.hpp"
#include "aici/vocabulary.hpp"

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

std::optional<regex::Regex> read_pattern(const Source& source, std::string_view pattern, Texts texts,
                                         const std::function<std::size_t(std::size_t)>& place) {
  regex::Error error;
  auto made = texts == Texts::kWithout   ? regex::Regex::without(pattern, &error)
              : texts == Texts::kLexemes ? regex::Regex::lexeme(pattern, /*lazy=*/true, &error)
                                         : regex::Regex::compile(pattern, &error);
  if (made) made->set_byte_classes(vocabulary().classes());
  if (!made && !error.no_text) source.fail(place(error.offset), "in this pattern " + error.message);
  return made;
}

std::string pattern_of(char32_t character) {
  if (character < 0x80 && is_word(static_cast<char>(character))) return {static_cast<char>(character)};
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  do digits.insert(digits.begin(), kDigits[character & 15]);
  while (character >>= 4);
  return "\\x{" + digits + "}";
}

std::string pattern_of(std::string_view text) {
  std::string pattern;
  for (std::size_t at = 0; at < text.size();)
    pattern += pattern_of(static_cast<char32_t>(regex::decode_utf8(text, &at)));
  return pattern;
}

cfg::Expr as_rule(cfg::Grammar& grammar, cfg::Expr expr, std::string_view name) {
  const cfg::Rule rule = grammar.declare(name);
  grammar.define(rule, expr);
  return grammar.call(rule);
}

cfg::Expr repeated(cfg::Grammar& grammar, cfg::Expr expr, std::uint32_t least, std::uint32_t most,
                   std::string_view name) {
  using Kind = cfg::Grammar::Node::Kind;
  const Kind kind = grammar.node(expr).kind;
  const bool often = most == cfg::kNoLimit ? least > 0 : most > 1;
  if (often && (kind == Kind::kSequence || kind == Kind::kChoice || kind == Kind::kRepeat))
    expr = as_rule(grammar, expr, name);
  return grammar.repeat(expr, least, most);
}

void warn(const Source& source, std::size_t at, std::string_view problem) {
  log("warning: " + source.place(at) + ": " + std::string(problem) + "\n");
}

std::vector<TokenId> take_tokens(Source& source, std::string* text) {
  const std::size_t at = source.at();
  while (source.peek() != '>' && source.peek() != '\n' && !source.at_end()) source.move(1);
  if (!source.accept(">")) source.fail(at, "the name of this token is not closed: `>` is missing");
  const std::string_view name = source.since(at);
  const Vocabulary& vocab = vocabulary();
  std::vector<TokenId> all;
  if (!name.starts_with("<[")) {
    for (TokenId token = 0; token < vocab.size(); token++)
      if (vocab.token(token) == name) all.push_back(token);
    if (all.empty())
      source.fail(at, "the vocabulary has no token " + std::string(name) + ": if it is text, write \"" +
                          std::string(name) + "\"");
    all.resize(1);
  } else {
    const std::size_t end = source.at();
    source.go_to(at + 2);
    do {
      if (!is_digit(source.peek()))
        source.fail(source.at(), "numbers of tokens are written as in <[12,20-24]>; all others (`^`) and any (`*`) are not "
                                 "supported, since text is not written as tokens here");
      const TokenId first = take_number(source, vocab.size() - 1);
      TokenId last = first;
      if (source.accept("-")) last = is_digit(source.peek()) ? take_number(source, vocab.size() - 1) : 0;
      if (last < first || last - first >= kMaxTokens || all.size() >= kMaxTokens)
        source.fail(at, "a list has at most " + std::to_string(kMaxTokens) + " tokens, in rising order");
      for (TokenId token = first; token <= last; token++) all.push_back(token);
    } while (source.accept(","));
    if (!source.accept("]>") || source.at() != end) source.fail(at, "numbers of tokens are written as in <[12,20-24]>");
  }
  for (const TokenId token : all) {
    const std::string which = "token " + std::to_string(token);
    if (vocab.is_eos(token))
      source.fail(at, which + " ends the sequence: leave it out, since it is allowed where the text is complete");
    if (vocab.is_special(token)) continue;
    if (vocab.token(token).empty()) source.fail(at, which + " is not used by the vocabulary");
    if (all.size() > 1)
      source.fail(at, which + " is text, which a list of tokens may not have: write \"" +
                          std::string(vocab.token(token)) + "\" as an alternative");
    *text = vocab.token(token);
    return {};
  }
  return all;
}

cfg::Expr one_of(cfg::Grammar& grammar, const Source& source, const std::vector<TokenId>& tokens, std::size_t at) {
  std::vector<cfg::Expr> all;
  for (const TokenId token : tokens) all.push_back(grammar.token(token));
  if (grammar.tokens().size() > kMaxTokens)
    source.fail(at, "the grammar has more than " + std::to_string(kMaxTokens) + " special tokens");
  return grammar.choice(all);
}

cfg::Expr read_schema(const Source& source, std::size_t at, std::string_view schema, cfg::Grammar& grammar,
                      bool plain) {
  const cfg::Lexemes around = grammar.lexemes();
  grammar.set_lexemes(cfg::Lexemes::kAnywhere);
  std::vector<json_schema::Problem> problems;
  cfg::Expr made = json_schema::add_schema(grammar, schema, {.plain = plain}, &problems);
  if (made == grammar.never()) {
    std::string message = "the schema is refused";
    for (const json_schema::Problem& problem : problems)
      if (problem.severity != json_schema::Problem::Severity::kRemark) message += "\n" + problem.text();
    source.fail(at, message);
  }
  for (const json_schema::Problem& problem : problems) aici::log("warning: not enforced: " + problem.text() + "\n");
  if (around != cfg::Lexemes::kAnywhere) {
    const cfg::Rule rule = grammar.declare("a JSON value");
    grammar.define(rule, made);
    made = grammar.call(rule);
  }
  grammar.set_lexemes(around);
  return made;
}

namespace {

/// Maximum number of warnings about rules. (Finding the position of a warning takes time: lines are counted.)
constexpr std::size_t kMaxWarnings = 20;

/// Returns the number of characters to change, insert, delete, or swap with the next one.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last, row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); j++) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); i++) {
    before = std::move(last), last = std::move(row);
    row.assign(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); j++) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest(std::string_view name, const std::vector<std::string_view>& names) {
  std::string_view best;
  std::size_t least = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (std::string_view other : names) {
    if (other.size() + least < name.size() || name.size() + least < other.size()) continue;
    if (const std::size_t d = distance(name, other); d < least) best = other, least = d;
  }
  return best;
}

Rules::Named& Rules::named(std::string_view name, std::size_t at) {
  const auto found = rules_.find(name);
  if (found != rules_.end()) return found->second;
  return rules_.emplace(name, Named{grammar_.declare(name), false, at}).first->second;
}

void Rules::enter(std::string_view name, std::size_t at, bool quiet) {
  current_ = &named(name, at);
  if (!current_->defined) current_->at = at;
  current_->defined = true;
  current_->quiet = quiet;
}

cfg::Expr Rules::call(std::string_view name, std::size_t at) {
  const cfg::Rule rule = named(name, at).rule;
  current_->calls.push_back(rule);
  return grammar_.call(rule);
}

const Rules::Named* Rules::find(std::string_view name) const {
  const auto found = rules_.find(name);
  return found == rules_.end() || !found->second.defined ? nullptr : &found->second;
}

std::string Rules::suggestion(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const auto& [known, rule] : rules_)
    if (rule.defined) names.push_back(known);
  const std::string_view best = nearest(name, names);
  return best.empty() ? "" : "; did you mean " + std::string(best) + "?";
}

std::vector<const Rules::Entry*> Rules::in_order() const {
  std::vector<const Entry*> all;
  for (const Entry& entry : rules_) all.push_back(&entry);
  std::sort(all.begin(), all.end(), [](auto a, auto b) { return a->second.at < b->second.at; });
  return all;
}

void Rules::check_names(std::string_view start) const {
  for (const Entry* entry : in_order())
    if (!entry->second.defined)
      source_.fail(entry->second.at, "there is no rule for " + entry->first + suggestion(entry->first));
  if (find(start) == nullptr)
    aici::fail("the grammar has no start rule, " + std::string(start) + suggestion(start));
}

std::vector<bool> Rules::used_by(const Named& start) const {
  std::vector<const Named*> by_number(grammar_.num_rules()), open{&start};
  for (const Entry& entry : rules_) by_number[entry.second.rule] = &entry.second;
  std::vector<bool> used(grammar_.num_rules());
  used[start.rule] = true;
  while (!open.empty()) {
    const Named* rule = open.back();
    open.pop_back();
    for (const cfg::Rule called : rule->calls)
      if (!used[called]) used[called] = true, open.push_back(by_number[called]);
  }
  return used;
}

void Rules::check_texts(std::string_view start) const {
  const Named& first = *find(start);
  const std::vector<bool> used = used_by(first), productive = grammar_.productive();
  const auto has_text = [&](cfg::Rule rule) { return productive[grammar_.body(rule)]; };
  if (!has_text(first.rule))
    source_.fail(first.at,
                 std::string(start) + " matches no text: each of its alternatives needs a rule that matches no text");
  std::size_t warnings = 0;
  for (const Entry* entry : in_order()) {
    const auto& [name, rule] = *entry;
    if (rule.quiet || (used[rule.rule] && has_text(rule.rule)) || ++warnings > kMaxWarnings) continue;
    warn(source_, rule.at, used[rule.rule] ? name + " matches no text, so what needs it is removed"
                                           : "the rule " + name + " is not used");
  }
  if (warnings > kMaxWarnings)
    log("warning: the same applies to " + std::to_string(warnings - kMaxWarnings) + " more rules\n");
}

}  // namespace aici::front
