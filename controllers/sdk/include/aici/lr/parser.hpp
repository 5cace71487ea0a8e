// parser.hpp - an LR(1) grammar with its lexer as a functional recognizer.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "aici/functional.hpp"
#include "aici/lexer/lexer.hpp"
#include "aici/lr/stacks.hpp"
#include "aici/lr/tables.hpp"

namespace aici::lr {

/// A state is a stack of the parser and where in a lexeme the lexer is. A byte is allowed if a terminal that is
/// possible next can still become of the lexeme; where the lexeme ends it is given to the parser.
class Parser {
 public:
  /// The numbers of the stack and of the lexer's state; 0 is dead.
  using State = std::uint32_t;

  Parser(Tables tables, lexer::Lexer lexer, lexer::Terminal ignored);

  State initial() const { return pack(Stacks::kInitial, lexer::Lexer::kInitial); }
  State append(State state, std::uint8_t byte) { return own_->append(state, byte); }
  bool dead(State state) const { return state == 0; }
  bool byte_allowed(State state, std::uint8_t byte) { return append(state, byte) != 0; }
  /// The text may end where the lexeme may, if the parser has read a whole one then.
  bool special_allowed(State state, SpecialToken token) {
    return token == SpecialToken::eos && own_->complete(state);
  }
  Signature loop_signature(State state) { return own_->loop(state).signature; }
  std::uint32_t loop_length(State state) { return own_->loop(state).length; }

  /// Between masks: forgets stacks if there are many.
  bool compact(State* state) { return own_->compact(state); }
  const char* failure() const { return own_->failure(); }

 private:
  static constexpr std::uint32_t kLexerBits = 14, kLexerMask = (1u << kLexerBits) - 1;
  static constexpr std::uint32_t kMostStacks = 1u << (32 - kLexerBits);
  static_assert(lexer::Lexer::kMostStates == 1u << kLexerBits);
  static constexpr State pack(Stacks::Stack stack, lexer::Lexer::State lexer) { return stack << kLexerBits | lexer; }

  struct Loop {
    Signature signature;
    std::uint32_t length;
  };

  /// On the heap, since parts refer to each other.
  class Own {
   public:
    Own(Tables tables, lexer::Lexer lexer, lexer::Terminal ignored);
    State append(State state, std::uint8_t byte);
    bool complete(State state);
    Loop loop(State state);
    bool compact(State* state);
    const char* failure() const;

   private:
    enum class Known : std::uint8_t { kNothing, kDead, kAlive, kDependsOnStack };

    /// Can a terminal that is possible on this stack become of the lexeme, and the text go on behind it?
    bool alive(Stacks::Stack stack, lexer::Lexer::State lexer);
    Known at_once(Stacks::Stack stack, lexer::Lexer::State lexer);
    bool search(State state);
    const std::vector<lexer::Lexer::Ending>& endings(lexer::Lexer::State lexer);
    Stacks::Stack after_lexeme(State state);

    Tables tables_;
    lexer::Lexer lexer_;
    Stacks stacks_;
    /// By set of viable terminals and state of the lexer.
    std::vector<std::vector<Known>> alive_;
    /// Where it depends on the stack.
    std::unordered_map<State, bool> has_end_;
    std::unordered_map<lexer::Lexer::State, std::vector<lexer::Lexer::Ending>> endings_;
    bool full_ = false;
  };

  std::unique_ptr<Own> own_;
};

static_assert(FunctionalRecognizer<Parser> && HasDead<Parser> && HasLoopLength<Parser>);
static_assert(HasCompact<Parser> && HasFailure<Parser>);

}  // namespace aici::lr
