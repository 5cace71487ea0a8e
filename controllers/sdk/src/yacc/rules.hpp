// rules.hpp - the syntax tree of a grammar: declarations and rules, before names are resolved.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "aici/detail/lr/grammar.hpp"
#include "source.hpp"

namespace aici::yacc {

struct Alternative {
  std::vector<Word> symbols;
  std::optional<Word> precedence;
};

struct Rule {
  std::string name;
  std::size_t at;
  std::vector<Alternative> alternatives;
};

struct PrecedenceLine {
  lr::Associativity associativity;
  std::vector<Word> symbols;
};

struct Rules {
  std::optional<Word> start;
  int expected_conflicts = -1;
  std::vector<PrecedenceLine> precedences;  ///< lowest first
  std::vector<Word> tokens;                 ///< named by %token
  std::vector<Rule> rules;                  ///< each name once

  const Rule* find(const std::string& name) const {
    for (const Rule& rule : rules)
      if (rule.name == name) return &rule;
    return nullptr;
  }
};

/// Fails the controller if the text is not in the syntax.
Rules read_rules(Source& source);

}  // namespace aici::yacc
