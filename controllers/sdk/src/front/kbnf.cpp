#include "aici/kbnf/kbnf.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/host.hpp"
#include "aici/substring.hpp"
#include "rules.hpp"

namespace aici::kbnf {

namespace {

using cfg::Expr;
using cfg::Grammar;
using front::Source;
using Nest = front::Nest<Expr>;

/// A quoted text: a literal, or the pattern in #'...'.
struct Quoted {
  std::string text;  ///< with its escapes replaced
  /// The position in the grammar of each byte of the text, and of its end.
  std::vector<std::size_t> from;
};

constexpr std::string_view kLetters = "nrtvfb\\'\"/", kMeanings = "\n\r\t\v\f\b\\'\"/";

bool is_octal(char c) { return c >= '0' && c <= '7'; }

/// Reads an escape after \u: four digits, or any number of digits in braces.
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
    if (value >= 0xD800 && value < 0xE000) source.fail(escape, "this is half a character: a surrogate");
    return value;
  }
  return front::take_utf16(source, escape);
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

/// Reads a text in single or double quotes. With `is_pattern`, a backslash that begins no escape of KBNF is kept for
/// the pattern, so \d and \\d are the same.
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

constexpr std::string_view kStart = "start";
bool is_name_start(char c) { return front::is_letter(c) || c == '_'; }
bool is_postfix(char c) { return c == '?' || c == '*' || c == '+'; }

/// Reads a grammar. Fails the controller, with line and column, if it is invalid. Writes warnings to the log.
class Reader {
 public:
  Reader(std::string_view text, std::span<const std::string> extract) : source_(text), rules_(source_, grammar_) {
    for (skip_blanks(); !source_.at_end(); skip_blanks()) read_rule();
    rules_.check_names(kStart);
    rules_.check_texts(kStart);
    start_ = rules_.find(kStart)->rule;
    for (const std::string& name : extract) {
      const front::Rules::Named* rule = rules_.find(name);
      if (rule == nullptr) fail("there is no rule " + name + " whose text can be extracted" + rules_.suggestion(name));
      grammar_.capture(rule->rule, {name, {}, nullptr, nullptr});
    }
  }

  cfg::Parser take() { return cfg::make_or_fail(std::move(grammar_), start_); }

 private:
  /// Skips blanks and comments. (In the original, comments may be only between rules.)
  void skip_blanks() {
    for (;;) {
      const std::size_t at = source_.at();
      const char c = source_.peek();
      if (c == ' ' || (c >= '\t' && c <= '\r')) {
        source_.move(1);
      } else if (source_.accept("(*")) {
        if (!source_.find("*)")) source_.fail(at, "this comment is not closed: `*)` is missing");
        source_.move(2);
      } else {
        return;
      }
    }
  }

  std::string_view take_name() {
    const std::size_t from = source_.at();
    while (front::is_word(source_.peek())) source_.move(1);
    return source_.since(from);
  }

  void read_rule() {
    const std::size_t at = source_.at();
    if (!is_name_start(source_.peek())) source_.fail_here("the name of a rule (letters, digits and _)");
    const std::string_view name = take_name();
    skip_blanks();
    if (!source_.accept("::=") && !source_.accept("=")) source_.fail_here("`::=` after the name of a rule");
    name_ = name;
    rules_.enter(name, at);
    const Expr body = read_body();
    if (!source_.accept(";")) source_.fail_here("`;` at the end of a rule, or more of it,");
    rules_.define(body);
  }

  Expr read_body() {
    Nest nest;
    for (;;) {
      skip_blanks();
      const bool comma = !nest.sequence().empty() && source_.accept(",");
      if (comma) skip_blanks();
      const std::size_t at = source_.at();
      const char c = source_.peek();
      if (c == '(' || c == '[' || c == '{') {
        source_.move(1);
        nest.open(source_, c == '(' ? ')' : c == '[' ? ']' : '}', at);
      } else if (const std::optional<Expr> atom = read_atom(c)) {
        nest.sequence().push_back(read_postfix(*atom));
      } else if (comma || nest.sequence().empty()) {
        source_.fail_here("a text, a pattern, a name or a bracket (the empty text is '')");
      } else if (source_.accept("|")) {
        nest.next_alternative();
      } else if (!nest.inside()) {
        return choice(nest.pop());
      } else if (c == nest.close()) {
        source_.move(1);
        Expr inside = choice(nest.pop());
        if (nest.is_deep()) inside = front::as_rule(grammar_, inside, name_);
        nest.sequence().push_back(read_postfix(c == ']'   ? grammar_.optional(inside)
                                               : c == '}' ? grammar_.star(inside)
                                                          : inside));
      } else {
        nest.fail_open(source_);
      }
    }
  }

  Expr choice(const Nest::Level& level) {
    std::vector<Expr> all;
    for (const auto& sequence : level.alternatives) all.push_back(grammar_.sequence(sequence));
    return grammar_.choice(all);
  }

  Expr read_postfix(Expr atom) {
    skip_blanks();
    const char postfix = source_.peek();
    if (!is_postfix(postfix)) return atom;
    source_.move(1);
    skip_blanks();
    if (is_postfix(source_.peek()))
      source_.fail(source_.at(), "only one of ?, * and + is possible here: write ('a'?)* with parentheses");
    if (postfix == '?') return grammar_.optional(atom);
    return front::repeated(grammar_, atom, postfix == '+', cfg::kNoLimit, name_);
  }

  std::optional<Expr> read_atom(char first) {
    const std::size_t at = source_.at();
    if (first == '\'' || first == '"') return grammar_.literal(take_quoted(source_, false).text);
    if (first == '#') return read_pattern();
    if (is_name_start(first)) return rules_.call(take_name(), at);
    return std::nullopt;
  }

  Expr read_pattern() {
    const std::size_t at = source_.at();
    source_.move(1);
    const std::string_view sort = take_name();
    if (source_.peek() != '\'' && source_.peek() != '"')
      source_.fail_here("a quote after `#" + std::string(sort) + "`");
    const Quoted quoted = take_quoted(source_, sort != "substrs" && sort != "json" && sort != "text");
    if (sort == "substrs") return grammar_.substring(Substrings(quoted.text));
    if (sort == "json" || sort == "text")
      return front::read_schema(source_, at, quoted.text, grammar_, sort == "text");
    const bool all = sort.empty(), early = sort == "e", without = sort == "ex";
    if (!all && !early && !without)
      source_.fail(at, "`#" + std::string(sort) +
                           "` is unknown; allowed are #'...', #e'...', #ex'...', #substrs'...', #json'...' and "
                           "#text'...'");
    const auto place = [&](std::size_t offset) { return quoted.from[offset]; };
    auto pattern = front::read_pattern(source_, quoted.text, without ? front::Texts::kWithout : front::Texts::kAll, place);
    const Expr made = !pattern ? grammar_.never()
                      : early  ? grammar_.early_regex(std::move(*pattern))
                               : grammar_.regex(std::move(*pattern));
    if (made == grammar_.never()) front::warn(source_, at, "no text matches this");
    return made;
  }

  Grammar grammar_;
  cfg::Rule start_ = 0;
  Source source_;
  front::Rules rules_;
  std::string_view name_;  ///< the rule that is being read
};

bool has_byte(cfg::Parser& parser) {
  for (unsigned byte = 0; byte < 256; byte++)
    if (parser.byte_allowed(parser.initial(), static_cast<std::uint8_t>(byte))) return true;
  return false;
}

}  // namespace

cfg::Parser make_or_fail(std::string_view grammar, std::span<const std::string> extract) {
  cfg::Parser parser = Reader(grammar, extract).take();
  if (!has_byte(parser)) fail("start matches only the empty text; it must match at least one byte");
  return parser;
}

}  // namespace aici::kbnf
