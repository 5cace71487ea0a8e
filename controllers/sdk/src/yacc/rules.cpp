#include "rules.hpp"

#include <charconv>
#include <map>
#include <string>

namespace aici::yacc {

namespace {

using lr::Associativity;
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
                                "` is unknown; allowed are %start, %token, %left, %right, %nonassoc, %precedence and "
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

/// A larger grammar could not become a parser within the limits of time and memory.
constexpr std::size_t kMaxRules = 8192, kMaxAlternatives = 1 << 15;

/// Indices in `Rules::rules` by name.
using Index = std::map<std::string, std::size_t>;

void read_rule(Source& source, Rules& rules, Index& index) {
  if (source.word().kind != Kind::kName) source.fail(source.word().at, "the name of a rule is expected");
  Word name = source.take();
  source.expect(":", "after the name of a rule");
  Rule rule{std::move(name.text), name.at, {}};
  do {
    if (rule.alternatives.size() == kMaxAlternatives)
      source.fail(source.word().at, "the rule has more than " + std::to_string(kMaxAlternatives) + " alternatives");
    rule.alternatives.push_back(read_alternative(source));
  } while (source.accept("|"));
  source.expect(";", "at the end of a rule");
  const auto [known, added] = index.emplace(rule.name, rules.rules.size());
  if (!added) {
    for (Alternative& more : rule.alternatives) rules.rules[known->second].alternatives.push_back(std::move(more));
    return;
  }
  if (rules.rules.size() == kMaxRules)
    source.fail(rule.at, "the grammar has more than " + std::to_string(kMaxRules) + " rules");
  rules.rules.push_back(std::move(rule));
}

}  // namespace

Rules read_rules(Source& source) {
  Rules rules;
  while (source.word().kind == Kind::kDirective) read_directive(source, rules);
  source.expect("%%", "before the rules");
  Index index;
  // in yacc, code follows after a second %%
  while (source.word().kind != Kind::kEnd && !source.word().is("%%")) read_rule(source, rules, index);
  if (rules.rules.empty()) source.fail(source.word().at, "the grammar has no rules");
  return rules;
}

}  // namespace aici::yacc
