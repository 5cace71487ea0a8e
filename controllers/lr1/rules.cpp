#include "rules.hpp"

#include <charconv>

namespace {

using aici::lr::Associativity;
using Kind = Word::Kind;

bool is_symbol(const Word& word) {
  return word.kind == Kind::kName || word.kind == Kind::kKeyword || word.kind == Kind::kPattern;
}

void read_directive(Source& source, Rules& rules) {
  static constexpr std::pair<std::string_view, Associativity> kPrecedences[] = {
      {"%left", Associativity::kLeft},
      {"%right", Associativity::kRight},
      {"%nonassoc", Associativity::kNonassoc},
      {"%precedence", Associativity::kPrecedence},
  };
  const Word directive = source.take();
  if (directive.text == "%start") {
    if (source.word().kind != Kind::kName) source.fail(source.word().at, "%start needs the name of a rule");
    rules.start = source.take();
    return;
  }
  if (directive.text == "%expect") {
    const std::string digits = source.word().text;
    if (source.word().kind != Kind::kNumber ||
        std::from_chars(digits.data(), digits.data() + digits.size(), rules.expected_conflicts).ec != std::errc())
      source.fail(source.word().at, "%expect needs the number of conflicts that are expected");
    source.take();
    return;
  }
  if (directive.text == "%token") {
    while (is_symbol(source.word())) rules.tokens.push_back(source.take());
    return;
  }
  for (const auto& [name, associativity] : kPrecedences)
    if (directive.text == name) {
      PrecedenceLine line{associativity, {}};
      while (is_symbol(source.word())) line.symbols.push_back(source.take());
      if (line.symbols.empty()) source.fail(directive.at, std::string(name) + " needs terminals");
      rules.precedences.push_back(std::move(line));
      return;
    }
  source.fail(directive.at, "`" + directive.text +
                                "` is not known: there are %start, %token, %left, %right, %nonassoc, %precedence and "
                                "%expect, and in rules %prec and %empty");
}

Alternative read_alternative(Source& source) {
  Alternative found;
  bool empty = false;
  for (;;) {
    const Word& word = source.word();
    if (is_symbol(word)) {
      if (empty) source.fail(word.at, "%empty stands alone");
      found.symbols.push_back(source.take());
    } else if (word.kind == Kind::kDirective && word.text == "%empty") {
      if (empty || !found.symbols.empty()) source.fail(word.at, "%empty stands alone");
      empty = true;
      source.take();
    } else if (word.kind == Kind::kDirective && word.text == "%prec") {
      source.take();
      if (!is_symbol(source.word())) source.fail(source.word().at, "%prec needs a terminal");
      found.precedence = source.take();
    } else {
      return found;
    }
  }
}

void read_rule(Source& source, Rules& rules) {
  if (source.word().kind != Kind::kName) source.fail(source.word().at, "the name of a rule is expected");
  Word name = source.take();
  source.expect(":", "after the name of a rule");
  Rule rule{std::move(name.text), name.at, {}};
  do rule.alternatives.push_back(read_alternative(source));
  while (source.accept("|"));
  source.expect(";", "at the end of a rule");
  for (Rule& known : rules.rules)
    if (known.name == rule.name) {
      for (Alternative& more : rule.alternatives) known.alternatives.push_back(std::move(more));
      return;
    }
  rules.rules.push_back(std::move(rule));
}

}  // namespace

Rules read_rules(Source& source) {
  Rules rules;
  while (source.word().kind == Kind::kDirective) read_directive(source, rules);
  source.expect("%%", "before the rules");
  // what is behind a second %% is code in yacc
  while (source.word().kind != Kind::kEnd && !source.word().is("%%")) read_rule(source, rules);
  if (rules.rules.empty()) source.fail(source.word().at, "the grammar has no rules");
  return rules;
}
