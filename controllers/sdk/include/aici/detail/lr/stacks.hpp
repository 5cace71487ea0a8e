// stacks.hpp - the stacks of an LR parser, each stored once and known by number.
//
// A stack is a state on top of another stack. Different texts that lead to the same states on the stack lead to the
// same number: after each statement of a block, the parser returns to an earlier stack. Results about a stack are
// cached under its number.
#pragma once

#include <cstdint>
#include <vector>

#include "aici/detail/hash_index.hpp"
#include "aici/detail/lexer/terminal_set.hpp"
#include "aici/detail/lr/tables.hpp"

namespace aici::lr {

class Stacks {
 public:
  /// 0 = none.
  using Stack = std::uint32_t;
  static constexpr Stack kNone = 0, kInitial = 1;

  /// Stores sets of terminals in `sets`. The terminal `ignored` is possible everywhere and changes nothing; it may be
  /// kNoTerminal.
  Stacks(const Tables* tables, lexer::TerminalSets* sets, lexer::Terminal ignored);

  /// Returns the stack after the terminal; kNone if the terminal is not possible.
  Stack advance(Stack stack, Terminal terminal);
  /// Returns whether the text is complete.
  bool accepting(Stack stack) { return possible(stack, kEnd); }
  /// Returns the number of the set of possible terminals.
  std::uint32_t viable(Stack stack) {
    const std::uint32_t known = nodes_[stack].viable;
    return known != kUnknown ? known : find_viable(stack);
  }

  std::size_t size() const { return nodes_.size(); }
  std::size_t bytes() const {
    return nodes_.size() * sizeof(Node) + steps_.size() * sizeof(Step) + ids_.bytes() + step_ids_.bytes();
  }
  /// Drops all stacks but one; returns its new number.
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
