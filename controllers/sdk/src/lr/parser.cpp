#include "aici/lr/parser.hpp"

#include <unordered_set>
#include <utility>

namespace aici::lr {

using lexer::kNoTerminal;
using lexer::Lexer;

Parser::Parser(Tables tables, Lexer lexer, lexer::Terminal ignored)
    : own_(std::make_unique<Own>(std::move(tables), std::move(lexer), ignored)) {}

Parser::Own::Own(Tables tables, Lexer lexer, lexer::Terminal ignored)
    : tables_(std::move(tables)),
      lexer_(std::move(lexer)),
      stacks_(&tables_, &lexer_.sets(), ignored) {}

Parser::Own::Known Parser::Own::at_once(Stacks::Stack stack, Lexer::State lexer) {
  const std::uint32_t viable = stacks_.viable(stack);
  if (viable >= alive_.size()) alive_.resize(viable + 1);
  if (lexer >= alive_[viable].size()) alive_[viable].resize(lexer_.num_states());
  Known known = alive_[viable][lexer];
  if (known == Known::kNothing) {
    // Where what is ignored can follow, anything can: blanks end the lexeme, and what comes next begins behind them.
    const lexer::TerminalSets& sets = lexer_.sets();
    const std::uint32_t reachable = lexer_.reachable(lexer), separable = lexer_.separable(lexer);
    known = !sets.meet(reachable, viable)  ? Known::kDead
            : sets.meet(separable, viable) ? Known::kAlive
                                           : Known::kDependsOnStack;
    alive_[viable][lexer] = known;
  }
  return known;
}

bool Parser::Own::alive(Stacks::Stack stack, Lexer::State lexer) {
  const Known known = at_once(stack, lexer);
  if (known != Known::kDependsOnStack) return known == Known::kAlive;
  const State state = pack(stack, lexer);
  if (const auto found = has_end_.find(state); found != has_end_.end()) return found->second;
  return search(state);
}

const std::vector<Lexer::Ending>& Parser::Own::endings(Lexer::State lexer) {
  auto known = endings_.find(lexer);
  if (known == endings_.end()) known = endings_.emplace(lexer, lexer_.endings(lexer)).first;
  return known->second;
}

/// Without blanks between them two lexemes may be read as one, so that what the parser could take next can never come.
/// Looks for a text to the end, lexeme by lexeme.
bool Parser::Own::search(State first) {
  constexpr std::size_t kMostSeen = 256;  // about 2 ms
  struct Seen {
    State state;
    std::size_t from;
  };
  std::vector<Seen> seen{{first, 0}};
  std::unordered_set<State> known{first};
  const auto success = [&](std::size_t at) {
    for (; at != 0; at = seen[at].from) has_end_[seen[at].state] = true;
    return has_end_[first] = true;
  };
  for (std::size_t at = 0; at < seen.size(); at++) {
    for (const Lexer::Ending& ending : endings(seen[at].state & kLexerMask)) {
      const Stacks::Stack stack = stacks_.advance(seen[at].state >> kLexerBits, ending.terminal);
      if (stack == Stacks::kNone) continue;
      if (stacks_.accepting(stack)) return success(at);
      for (const Lexer::State lexer : ending.next) {
        const Known here = at_once(stack, lexer);
        if (here == Known::kDead) continue;
        const State next = pack(stack, lexer);
        const auto found = has_end_.find(next);
        if (here == Known::kAlive || (found != has_end_.end() && found->second)) return success(at);
        // one that is too far away to be looked for counts as an end
        if (stack >= kMostStacks - 1 || seen.size() == kMostSeen) return success(at);
        if (found == has_end_.end() && known.insert(next).second) seen.push_back({next, at});
      }
    }
  }
  for (const Seen& none : seen) has_end_[none.state] = false;
  return false;
}

/// The stack when the lexeme ends here.
Stacks::Stack Parser::Own::after_lexeme(State state) {
  const lexer::Terminal terminal = lexer_.accepted(state & kLexerMask);
  return terminal == kNoTerminal ? Stacks::kNone : stacks_.advance(state >> kLexerBits, terminal);
}

Parser::State Parser::Own::append(State state, std::uint8_t byte) {
  if (state == 0) return 0;
  Stacks::Stack stack = state >> kLexerBits;
  Lexer::State next = lexer_.append(state & kLexerMask, byte);
  if (next == Lexer::kDead) {
    stack = after_lexeme(state);
    if (stack == Stacks::kNone) return 0;
    if (stack >= kMostStacks) {
      full_ = true;
      return 0;
    }
    next = lexer_.append(Lexer::kInitial, byte);
    if (next == Lexer::kDead) return 0;
  }
  return alive(stack, next) ? pack(stack, next) : 0;
}

bool Parser::Own::complete(State state) {
  if (state == 0) return false;
  if ((state & kLexerMask) == Lexer::kInitial) return stacks_.accepting(state >> kLexerBits);
  const Stacks::Stack stack = after_lexeme(state);
  return stack != Stacks::kNone && stacks_.accepting(stack);
}

Parser::Loop Parser::Own::loop(State state) {
  Loop found{0, kUnlimited};
  if (state != 0)
    found.signature =
        lexer_.loop_signature(state & kLexerMask, stacks_.viable(state >> kLexerBits), &found.length);
  return found;
}

bool Parser::Own::compact(State* state) {
  constexpr std::size_t kKept = 1 << 14;
  if (*state == 0 || stacks_.size() < kKept) return false;
  has_end_.clear();
  *state = pack(stacks_.keep_only(*state >> kLexerBits), *state & kLexerMask);
  return true;
}

const char* Parser::Own::failure() const {
  return full_ ? "the parser of the grammar has too many stacks for one mask" : lexer_.failure();
}

}  // namespace aici::lr
