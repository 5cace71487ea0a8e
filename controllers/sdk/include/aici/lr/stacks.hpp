// stacks.hpp - the stacks of an LR parser, each kept once and known by number.
//
// A stack is a state on top of another stack. Texts that differ and lead to the same states on the stack lead to the
// same number: after each statement of a block a parser is where it was before. So what is found out about a stack is
// remembered under its number.
#pragma once

#include <cstdint>
#include <vector>

#include "aici/hash_index.hpp"
#include "aici/lexer/terminal_set.hpp"
#include "aici/lr/tables.hpp"

namespace aici::lr {

class Stacks {
 public:
  /// 0 = none.
  using Stack = std::uint32_t;
  static constexpr Stack kNone = 0, kInitial = 1;

  /// Sets of terminals are made in `sets`; `ignored` is possible everywhere and changes nothing (kNoTerminal: there
  /// is none).
  Stacks(const Tables* tables, lexer::TerminalSets* sets, lexer::Terminal ignored);

  /// The stack after the terminal; kNone if it is not possible.
  Stack advance(Stack stack, Terminal terminal);
  /// Is the text complete?
  bool accepting(Stack stack) { return possible(stack, kEnd); }
  /// The number of the set of terminals that are possible.
  std::uint32_t viable(Stack stack) {
    const std::uint32_t known = nodes_[stack].viable;
    return known != kUnknown ? known : find_viable(stack);
  }

  std::size_t size() const { return nodes_.size(); }
  /// Forgets all stacks but one, whose new number it returns.
  Stack keep_only(Stack stack);

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffff;
  struct Node {
    Stack below;
    std::uint16_t state;
    std::uint32_t viable = kUnknown;
  };
  struct Step {
    Stack from = kNone;
    Terminal terminal = 0;
    Stack to = kNone;
  };

  Stack push(Stack below, std::uint32_t state);
  bool possible(Stack stack, Terminal terminal);
  Stack take(Stack stack, Terminal terminal);
  std::uint32_t find_viable(Stack stack);

  const Tables* tables_;
  lexer::TerminalSets* sets_;
  lexer::Terminal ignored_;
  std::vector<Node> nodes_;
  HashIndex ids_;
  std::vector<Step> steps_;
  HashIndex step_ids_;
  Step last_;
  std::vector<std::uint16_t> scratch_;
};

}  // namespace aici::lr
