#include "aici/detail/lr/parser.hpp"

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace aici::lr {

using lexer::Lexer;
using lexer::kNoTerminal;

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

namespace {

/// Maximum number of different loops. Grammars have a few dozen.
constexpr std::size_t kMaxLoops = 1024;
/// Maximum number of lists of readings, and of readings in a list.
constexpr std::size_t kMaxSeveral = 4096, kMaxReadings = 16;

}  // namespace

Parser::Parser(Tables tables, Lexer lexer, lexer::Terminal ignored)
    : own_(std::make_unique<Own>(std::move(tables), std::move(lexer), ignored)) {}

Parser::Own::Own(Tables tables, Lexer lexer, lexer::Terminal ignored)
    : tables_(std::move(tables)),
      lexer_(std::move(lexer)),
      stacks_(&tables_, &lexer_.sets(), ignored),
      ignored_(ignored) {}

Parser::Own::Outlook& Parser::Own::find_outlook(std::uint32_t viable, Lexer::State lexer) {
  if ((lexer & Lexer::kOvershot) != 0) return overshot_;
  // Where ignored text can follow, anything can: blanks end the lexeme, and the next lexeme begins after them.
  const std::uint32_t reachable = lexer_.reachable(lexer), separable = lexer_.separable(lexer);
  if (viable >= outlooks_.size()) outlooks_.resize(viable + 1);
  if (lexer >= outlooks_[viable].size()) outlooks_[viable].resize(lexer_.num_states());
  const lexer::TerminalSets& sets = lexer_.sets();
  Outlook& found = outlooks_[viable][lexer];
  found.known = !sets.meet(reachable, viable)  ? Known::kDead
                : sets.meet(separable, viable) ? Known::kAlive
                                               : Known::kDependsOnStack;
  found.read = lexer_.guarded(lexer) ? Known::kSeveral : found.known;
  return found;
}

bool Parser::Own::alive(Stacks::Stack stack, Lexer::State lexer) {
  lexer = lexer_.without_guard(lexer);
  const Known known = at_once(stack, lexer);
  return known == Known::kDependsOnStack ? search(pack(stack, lexer)) : known == Known::kAlive;
}

const std::optional<std::vector<Lexer::Ending>>& Parser::Own::endings(Lexer::State lexer) {
  auto known = endings_.find(lexer);
  if (known == endings_.end()) known = endings_.emplace(lexer, lexer_.endings(lexer)).first;
  return known->second;
}

/// Returns whether a text can be completed from this state. Two adjacent lexemes without blanks between them may be
/// read as one, so a text that the parser allows may be impossible. This searches for a complete text, lexeme by
/// lexeme. If that is too far to search, it assumes that there is one.
bool Parser::Own::search(State first) {
  constexpr std::size_t kMaxSeen = 256;  // about 2 ms
  struct Seen {
    State state;
    std::size_t from;
  };
  if (const auto found = has_end_.find(first); found != has_end_.end()) return found->second;
  std::vector<Seen> seen{{first, 0}};
  std::unordered_set<State> known{first};
  const auto success = [&](std::size_t at) {
    for (; at != 0; at = seen[at].from) has_end_[seen[at].state] = true;
    return has_end_[first] = true;
  };
  for (std::size_t at = 0; at < seen.size(); at++) {
    const auto& all = endings(seen[at].state & kLexerMask);
    if (!all) return success(at);
    for (const Lexer::Ending& ending : *all) {
      const Stacks::Stack stack = stacks_.advance(seen[at].state >> kLexerBits, ending.terminal);
      if (stack == Stacks::kNone) continue;
      if (stacks_.accepting(stack)) return success(at);
      for (const Lexer::State lexer : ending.next) {
        const Known here = at_once(stack, lexer);
        if (here == Known::kDead) continue;
        const State next = pack(stack, lexer);
        const auto found = has_end_.find(next);
        if (here == Known::kAlive || (found != has_end_.end() && found->second)) return success(at);
        if (stack >= kMaxStacks - 1 || seen.size() == kMaxSeen) return success(at);
        if (found == has_end_.end() && known.insert(next).second) seen.push_back({next, at});
      }
    }
  }
  for (const Seen& none : seen) has_end_[none.state] = false;
  return false;
}

/// Returns the stack if the lexeme ends here; kNone if it is not complete or not allowed.
Stacks::Stack Parser::Own::after_lexeme(State state) {
  const lexer::Terminal terminal = lexer_.accepted(state & kLexerMask);
  return terminal == kNoTerminal ? Stacks::kNone : stacks_.advance(state >> kLexerBits, terminal);
}

Parser::State Parser::Own::append(State state, std::uint8_t byte) {
  if (state == 0) return 0;
  Stacks::Stack stack = state >> kLexerBits;
  Lexer::State next = lexer_.step(state & kLexerMask, byte);
  if (next == Lexer::kDead) {
    if (is_several(state) || lexer_.guarded(state & kLexerMask)) return append_several(state, byte);
    stack = after_lexeme(state);
    if (stack == Stacks::kNone) return 0;
    if (stack >= kMaxStacks) {
      full_ = true;
      return 0;
    }
    next = lexer_.append(Lexer::kInitial, byte);
    if (next == Lexer::kDead) return 0;
  }
  const Known known = outlook(stacks_.viable(stack), next).read;
  if (known == Known::kAlive) return pack(stack, next);
  if (known == Known::kDead) return 0;
  if (known == Known::kSeveral) return append_several(state, byte);
  return search(pack(stack, next)) ? pack(stack, next) : 0;
}

/// Adds the states after the byte. Where the lexeme was complete before it and is not complete with it, there are two:
/// one in which it goes on, and one in which it has ended, guarded by the other one.
void Parser::Own::read(State state, std::uint8_t byte, std::vector<State>& readings) {
  const Lexer::State before = state & kLexerMask, next = lexer_.append(before, byte);
  const auto add = [&](Stacks::Stack stack, Lexer::State lexer) {
    if (lexer != Lexer::kDead && std::ranges::find(readings, pack(stack, lexer)) == readings.end())
      readings.push_back(pack(stack, lexer));
  };
  if (next != Lexer::kDead && alive(state >> kLexerBits, next)) add(state >> kLexerBits, next);
  const Stacks::Stack after = lexer_.accepted(next) == kNoTerminal ? after_lexeme(state) : Stacks::kNone;
  full_ = full_ || after >= kMaxStacks;
  if (after == Stacks::kNone || full_) return;
  // most bytes begin nothing there, and a guard costs a state
  const Lexer::State first = lexer_.append(Lexer::kInitial, byte);
  if (first != Lexer::kDead && alive(after, first)) add(after, lexer_.append(lexer_.follow(before), byte));
}

/// Reads a byte where there are several readings, or may be. If all are guarded, their guards have to permit the end of
/// a text.
Parser::State Parser::Own::append_several(State state, std::uint8_t byte) {
  std::vector<State> found;
  const auto before = readings(state);
  for (const State one : std::vector<State>(before.begin(), before.end())) read(one, byte, found);
  if (std::ranges::all_of(found, [&](State it) { return lexer_.guarded(it & kLexerMask); }))
    std::erase_if(found, [&](State it) { return !search(it); });
  if (found.size() <= 1) return found.empty() ? 0 : found.front();
  const auto known = static_cast<std::size_t>(std::ranges::find(several_, found) - several_.begin());
  if (known == several_.size()) {
    if (known >= kMaxSeveral || found.size() > kMaxReadings) {
      full_ = true;
      return 0;
    }
    several_.push_back(std::move(found));
  }
  return pack(static_cast<Stacks::Stack>(known), Lexer::kUnused);
}

bool Parser::Own::complete(State state) {
  if (state == 0) return false;
  if (is_several(state)) return std::ranges::any_of(readings(state), [&](State one) { return complete(one); });
  if ((state & kLexerMask) == Lexer::kInitial) return stacks_.accepting(state >> kLexerBits);
  const Stacks::Stack stack = after_lexeme(state);
  return stack != Stacks::kNone && stacks_.accepting(stack);
}

std::uint16_t Parser::Own::find_loop(std::uint32_t viable, Lexer::State lexer) {
  Loop found{0, kUnlimited};
  found.signature = lexer_.loop_signature(lexer, viable, &found.length);
  const auto known = std::find(loops_.begin() + 1, loops_.end(), found);
  const auto number = static_cast<std::uint16_t>(known - loops_.begin());
  if (known != loops_.end()) return number;
  if (loops_.size() > kMaxLoops) return 1;  // the loop that holds for no text
  loops_.push_back(found);
  return number;
}

const Parser::Loop& Parser::Own::loop(std::uint32_t viable, Lexer::State lexer) {
  Outlook& here = outlook(viable, lexer);
  if (here.loop == 0) here.loop = find_loop(viable, lexer);
  return loops_[here.loop];
}

Parser::State Parser::Own::restart(State state, std::uint8_t byte) {
  if (state == 0 || is_several(state) || lexer_.guarded(state & kLexerMask)) return 0;
  if (lexer_.append(state & kLexerMask, byte) != Lexer::kDead) return 0;
  const Stacks::Stack stack = after_lexeme(state);
  return stack == Stacks::kNone || stack >= kMaxStacks ? 0 : pack(stack, Lexer::kInitial);
}

std::uint32_t Parser::Own::append_inside(std::uint32_t state, std::uint8_t byte) {
  if (state == 0) return 0;
  const std::uint32_t viable = state >> kLexerBits;
  const Lexer::State lexer = state & kLexerMask;
  Lexer::State next = lexer_.step(lexer, byte);
  if (next == Lexer::kDead) {
    const lexer::Terminal terminal = lexer_.accepted(lexer);
    if (terminal == kNoTerminal || !lexer_.sets().has(viable, terminal)) return 0;
    if (terminal != ignored_ || lexer_.guarded(lexer)) return Inner::kLeaves;
    next = lexer_.append(Lexer::kInitial, byte);
    if (next == Lexer::kDead) return 0;
  }
  const Known known = outlook(viable, next).read;
  if (known == Known::kAlive) return viable << kLexerBits | next;
  return known == Known::kDead ? 0 : Inner::kLeaves;
}

bool Parser::Own::compact(State* state) {
  constexpr std::size_t kKept = 1 << 14;
  if (*state == 0 || is_several(*state) || (stacks_.size() < kKept && several_.size() < kMaxSeveral / 4)) return false;
  has_end_.clear(), several_.clear();
  // before the first byte, everything that is missing can be built again
  if (*state == pack(Stacks::kInitial, Lexer::kInitial)) full_ = false;
  *state = pack(stacks_.keep_only(*state >> kLexerBits), *state & kLexerMask);
  return true;
}

const char* Parser::Own::failure() const {
  return full_ ? "the parser of the grammar has too many stacks for one mask" : lexer_.failure();
}

}  // namespace aici::lr
