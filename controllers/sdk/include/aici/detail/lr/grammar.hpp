// grammar.hpp - a context-free grammar with the precedences of yacc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "aici/detail/lexer/terminal_set.hpp"

namespace aici::lr {

using lexer::Terminal;
/// A terminal, or kFirstNonterminal plus the number of a nonterminal.
using Symbol = std::uint16_t;
inline constexpr Symbol kFirstNonterminal = 0x8000;
inline bool is_nonterminal(Symbol symbol) { return symbol >= kFirstNonterminal; }
inline std::uint32_t nonterminal_index(Symbol symbol) { return symbol - kFirstNonterminal; }

/// The terminal after the end of the text.
inline constexpr Terminal kEnd = 0;

enum class Associativity : std::uint8_t { kNone, kLeft, kRight, kNonassoc, kPrecedence };

struct Precedence {
  std::uint16_t level = 0;  ///< 0: none; higher levels bind more tightly
  Associativity associativity = Associativity::kNone;
};

struct Production {
  Symbol left;
  std::vector<Symbol> right;
  Precedence precedence;
};

/// Production 0 is `start' : start`, with an extra nonterminal.
struct Grammar {
  /// By number; that of kEnd first.
  std::vector<std::string> terminals, nonterminals;
  std::vector<Precedence> precedences;  ///< of terminals
  std::vector<Production> productions;

  const std::string& name(Symbol symbol) const {
    return is_nonterminal(symbol) ? nonterminals[nonterminal_index(symbol)] : terminals[symbol];
  }
  /// `expr : expr . "+" expr`
  std::string item(std::uint32_t production, std::uint32_t dot) const;
};

}  // namespace aici::lr
