#include "patterns.hpp"

#include <string>
#include <utility>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"
#include "../regex/unicode/utf8.hpp"

namespace aici::front {

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

}  // namespace aici::front
