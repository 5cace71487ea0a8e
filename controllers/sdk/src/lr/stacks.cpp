#include "aici/detail/lr/stacks.hpp"

namespace aici::lr {

Stacks::Stacks(const Tables* tables, lexer::TerminalSets* sets, lexer::Terminal ignored)
    : tables_(tables), sets_(sets), ignored_(ignored) {
  nodes_.push_back({kNone, 0});
  push(kNone, 1);
}

Stacks::Stack Stacks::push(Stack below, std::uint32_t state) {
  Hasher hash;
  hash.add(below), hash.add(state);
  const auto same = [&](std::uint32_t i) { return nodes_[i].below == below && nodes_[i].state == state; };
  const std::uint32_t known = ids_.find(hash.bits(), same);
  if (known != HashIndex::kNone) return known;
  const auto stack = static_cast<Stack>(nodes_.size());
  nodes_.push_back({below, static_cast<std::uint16_t>(state)});
  ids_.insert(hash.bits(), stack);
  return stack;
}

Stacks::Stack Stacks::advance(Stack stack, Terminal terminal) {
  if (terminal == ignored_) return stack;
  // tokens that end the same lexeme are adjacent in the trie
  if (last_.from == stack && last_.terminal == terminal) return last_.to;
  Hasher hash;
  hash.add(stack), hash.add(terminal);
  const auto same = [&](std::uint32_t i) { return steps_[i].from == stack && steps_[i].terminal == terminal; };
  const std::uint32_t known = step_ids_.find(hash.bits(), same);
  if (known != HashIndex::kNone) return (last_ = steps_[known]).to;
  const Stack to = take(stack, terminal);
  step_ids_.insert(hash.bits(), static_cast<std::uint32_t>(steps_.size()));
  steps_.push_back(last_ = {stack, terminal, to});
  return to;
}

Stacks::Stack Stacks::take(Stack stack, Terminal terminal) {
  if (!possible(stack, terminal)) return kNone;
  for (;;) {
    const Action action = tables_->action(nodes_[stack].state, terminal);
    if (action > 0) return push(stack, static_cast<std::uint32_t>(action));
    const auto production = static_cast<std::uint32_t>(-action);
    for (std::uint32_t i = tables_->length[production]; i != 0; i--) stack = nodes_[stack].below;
    stack = push(stack, tables_->go(nodes_[stack].state, tables_->left[production]));
  }
}

/// Returns whether the terminal can be read. Merged states may reduce at a terminal that is not possible below, so this
/// simulates the reductions; `scratch_` has the states that they push.
bool Stacks::possible(Stack stack, Terminal terminal) {
  std::uint32_t top = nodes_[stack].state;
  scratch_.clear();
  // A conflict with a bad resolution may reduce forever. Any other reduction shortens the stack, or is one of the few
  // that push something empty.
  for (std::size_t left = 2 * nodes_.size() + 1000; left != 0; left--) {
    const Action action = tables_->action(top, terminal);
    if (action > 0 || action == kAccept) return true;
    if (action == 0) return false;
    const auto production = static_cast<std::uint32_t>(-action);
    std::uint32_t count = tables_->length[production];
    for (; count != 0 && !scratch_.empty(); count--) scratch_.pop_back();
    for (; count != 0; count--) stack = nodes_[stack].below;
    const std::uint32_t below = scratch_.empty() ? nodes_[stack].state : scratch_.back();
    top = tables_->go(below, tables_->left[production]);
    scratch_.push_back(static_cast<std::uint16_t>(top));
  }
  return false;
}

std::uint32_t Stacks::find_viable(Stack stack) {
  std::vector<std::uint32_t> set = sets_->empty();
  for (Terminal t = 1; t < tables_->num_terminals; t++)
    if (t == ignored_ || possible(stack, t)) lexer::add(set, t);
  return nodes_[stack].viable = sets_->intern(set);
}

Stacks::Stack Stacks::keep_only(Stack stack) {
  std::vector<std::uint16_t> states;
  for (; stack != kInitial; stack = nodes_[stack].below) states.push_back(nodes_[stack].state);
  nodes_.resize(1);
  ids_.clear(), steps_.clear(), step_ids_.clear(), last_ = {};
  stack = push(kNone, 1);
  for (std::size_t i = states.size(); i != 0; i--) stack = push(stack, states[i - 1]);
  return stack;
}

}  // namespace aici::lr
