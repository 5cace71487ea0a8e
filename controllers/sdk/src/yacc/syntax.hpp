// syntax.hpp - a grammar in the syntax of yacc as it is written: its words, and declarations and rules of them, before
// names are resolved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aici/detail/lr/parser.hpp"
#include "../front/rules.hpp"

namespace aici::yacc {

struct Word {
  enum class Kind : std::uint8_t {
    kEnd,
    kName,       ///< identifier
    kKeyword,    ///< quoted; `text` is without quotes and escapes
    kPattern,    ///< quoted, between slashes; `text` is the expression
    kDirective,  ///< %name; `text` includes the %
    kMark,       ///< : | ; or %%
    kNumber,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  std::size_t at = 0;

  bool is(std::string_view mark) const { return kind == Kind::kMark && text == mark; }
};

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

/// Reads declarations and rules. Fails the controller, with line and column, if the text is not in the syntax. `places`
/// is made from the same text.
Rules read_rules(std::string_view text, const front::Source& places);

/// Makes the parser of a grammar. Adds warnings, such as about conflicts; fails the controller if the grammar is
/// invalid or has another number of conflicts than it declares.
lr::Parser make_parser(std::string_view text, std::vector<std::string>* warnings);

}  // namespace aici::yacc
