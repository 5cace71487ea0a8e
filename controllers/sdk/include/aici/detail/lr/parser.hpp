// parser.hpp - an LR(1) grammar with its lexer as a functional recognizer: the grammar, the tables of its parser, and
// the parser.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "aici/detail/answer_cache.hpp"
#include "aici/detail/hash_index.hpp"
#include "aici/detail/lr/lexer.hpp"
#include "aici/functional.hpp"

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

/// The action in a state for a terminal. 0: error; n > 0: go to state n; n < 0: reduce by production -n. kAccept
/// is that by production 0.
using Action = std::int16_t;
inline constexpr Action kAccept = -0x7fff;

/// The tables of an LR(1) parser.
struct Tables {
  std::uint32_t num_states = 0, num_terminals = 0, num_nonterminals = 0;
  std::vector<Action> actions;         ///< by state and terminal
  std::vector<std::uint16_t> gotos;    ///< by state and nonterminal; 0 = none
  /// By production.
  std::vector<std::uint16_t> length, left;

  Action action(std::uint32_t state, Terminal terminal) const { return actions[state * num_terminals + terminal]; }
  std::uint32_t go(std::uint32_t state, std::uint32_t nonterminal) const {
    return gotos[state * num_nonterminals + nonterminal];
  }
};

/// A conflict of the grammar, and its resolution.
struct Conflict {
  bool between_reductions;
  std::string text;
};

struct Limits {
  /// Maximum number of states; C needs some 400. Building takes about 50 us per state.
  std::uint32_t states = 8192;
};

/// Builds the tables. Merges states as far as this adds no conflict to canonical LR(1) (Pager 1977). Conflicts that
/// precedences do not resolve are resolved as in yacc: shift, or reduce by the first production. Returns an error
/// message, or null.
const char* build_tables(const Grammar& grammar, Tables* tables, std::vector<Conflict>* conflicts,
                         const Limits& limits = {});

/// The stacks of the parser, each stored once and known by number.
///
/// A stack is a state on top of another stack. Different texts that lead to the same states on the stack lead to the
/// same number: after each statement of a block, the parser returns to an earlier stack. Results about a stack are
/// cached under its number.
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

/// A state is a stack of the parser and a state of the lexer within a lexeme. A byte is allowed if the lexeme can still
/// become a terminal that is possible next. At the end of the lexeme the parser reads its terminal. Where a lexeme is
/// complete but might go on, there are several such pairs.
class Parser {
 public:
  /// The numbers of the stack and of the lexer's state, packed; 0 is dead. With Lexer::kUnused: the number of a list.
  using State = std::uint32_t;

  Parser(Tables tables, lexer::Lexer lexer, lexer::Terminal ignored);

  State initial() const { return pack(Stacks::kInitial, lexer::Lexer::kInitial); }
  State append(State state, std::uint8_t byte) { return own_->append(state, byte); }
  bool dead(State state) const { return state == 0; }
  bool byte_allowed(State state, std::uint8_t byte) { return append(state, byte) != 0; }
  /// The text may end where the lexeme may end, if the parser accepts the text up to there.
  bool special_allowed(State state, SpecialToken token) {
    return token == SpecialToken::eos && own_->complete(state);
  }
  Signature loop_signature(State state) { return own_->loop(state).signature; }
  std::uint32_t loop_length(State state) { return own_->loop(state).length; }
  bool well_formed() const { return own_->well_formed(); }

  class Inner;
  /// A mask depends mostly on the viable terminals and the lexer's state.
  std::uint32_t inner(State state) { return own_->inner(state); }
  Inner inside();
  State outer(State state, std::uint32_t inner) {
    return pack(state >> kLexerBits, inner & kLexerMask);
  }
  State restart(State state, std::uint8_t byte) { return own_->restart(state, byte); }
  InnerMasks& inner_masks() { return own_->inner_masks(); }

  /// Drops stacks, between masks, if there are many.
  bool compact(State* state) { return own_->compact(state); }
  std::size_t bytes() const { return own_->bytes(); }
  const char* failure() const { return own_->failure(); }

 private:
  static constexpr std::uint32_t kLexerBits = 14, kLexerMask = (1u << kLexerBits) - 1;
  static constexpr std::size_t kInnerBytes = 256 << 10;
  static constexpr std::uint32_t kMaxStacks = 1u << (32 - kLexerBits);
  static_assert(lexer::Lexer::kMaxStates == 1u << kLexerBits);
  static constexpr State pack(Stacks::Stack stack, lexer::Lexer::State lexer) { return stack << kLexerBits | lexer; }

  struct Loop {
    Signature signature;
    std::uint32_t length;
    bool operator==(const Loop&) const = default;
  };

  /// On the heap, since parts refer to each other.
  class Own {
   public:
    Own(Tables tables, lexer::Lexer lexer, lexer::Terminal ignored);
    State append(State state, std::uint8_t byte);
    bool complete(State state);
    bool well_formed() const { return lexer_.well_formed(); }
    const Loop& loop(State state) {
      if (is_several(state)) state = several_[state >> kLexerBits].front();
      return state == 0 ? loops_[1] : loop(stacks_.viable(state >> kLexerBits), state & kLexerMask);
    }
    const Loop& loop(std::uint32_t viable, lexer::Lexer::State lexer);
    std::uint32_t inner(State state) {
      if (state == 0 || is_several(state)) return 0;
      return stacks_.viable(state >> kLexerBits) << kLexerBits | (state & kLexerMask);
    }
    State restart(State state, std::uint8_t byte);
    std::uint32_t append_inside(std::uint32_t state, std::uint8_t byte);
    InnerMasks& inner_masks() { return inner_masks_; }
    bool compact(State* state);
    std::size_t bytes() const { return stacks_.bytes() + lexer_.bytes(); }
    const char* failure() const;

   private:
    enum class Known : std::uint8_t { kNothing, kDead, kAlive, kDependsOnStack, kSeveral };
    /// Cached facts about a lexeme and the terminals that are viable after it.
    struct Outlook {
      Known known = Known::kNothing;
      Known read = Known::kNothing;  ///< the same; kSeveral if the lexeme may have ended before the last byte
      std::uint16_t loop = 0;  ///< number in `loops_`; 0: not computed yet
    };

    /// Returns whether the lexeme can become a terminal that is possible on this stack, and the text can continue
    /// after it, if its guard permits.
    bool alive(Stacks::Stack stack, lexer::Lexer::State lexer);
    Known at_once(Stacks::Stack stack, lexer::Lexer::State lexer) { return outlook(stacks_.viable(stack), lexer).known; }
    Outlook& outlook(std::uint32_t viable, lexer::Lexer::State lexer) {
      if (viable < outlooks_.size() && lexer < outlooks_[viable].size())
        if (Outlook& found = outlooks_[viable][lexer]; found.known != Known::kNothing) return found;
      return find_outlook(viable, lexer);
    }
    Outlook& find_outlook(std::uint32_t viable, lexer::Lexer::State lexer);
    std::uint16_t find_loop(std::uint32_t viable, lexer::Lexer::State lexer);
    static bool is_several(State state) { return (state & kLexerMask) == lexer::Lexer::kUnused; }
    std::span<const State> readings(const State& state) const {
      return is_several(state) ? std::span<const State>(several_[state >> kLexerBits]) : std::span(&state, 1);
    }
    State state_of(std::vector<State> readings);
    State append_several(State state, std::uint8_t byte);
    void read(State state, std::uint8_t byte, std::vector<State>& readings);
    bool search(State state);
    const std::optional<std::vector<lexer::Lexer::Ending>>& endings(lexer::Lexer::State lexer);
    Stacks::Stack after_lexeme(State state);

    Tables tables_;
    lexer::Lexer lexer_;
    Stacks stacks_;
    /// By set of viable terminals and state of the lexer.
    std::vector<std::vector<Outlook>> outlooks_;
    /// Where the lexeme may have ended before the last byte.
    Outlook overshot_{.read = Known::kSeveral};
    /// Each once.
    std::vector<Loop> loops_{{0, 0}, {0, kUnlimited}};
    /// Where it depends on the stack.
    std::unordered_map<State, bool> has_end_;
    std::vector<std::vector<State>> several_;
    std::unordered_map<lexer::Lexer::State, std::optional<std::vector<lexer::Lexer::Ending>>> endings_;
    lexer::Terminal ignored_;
    InnerMasks inner_masks_{kInnerBytes};
    bool full_ = false;
  };

  std::unique_ptr<Own> own_;
};

/// Lexemes while the stack stays the same and a set of terminals is viable: the current lexeme, and the ignored text
/// before and after it. A state is the number of the set and the state of the lexer.
class Parser::Inner {
 public:
  using State = std::uint32_t;

  explicit Inner(Own* own) : own_(own) {}

  State initial() const { return 0; }
  State append(State state, std::uint8_t byte) { return own_->append_inside(state, byte); }
  bool dead(State state) const { return state == 0; }
  bool leaves(State state) const { return state == kLeaves; }
  bool byte_allowed(State state, std::uint8_t byte) { return append(state, byte) != 0; }
  bool special_allowed(State, SpecialToken) { return false; }
  Signature loop_signature(State state) { return own_->loop(state >> kLexerBits, state & kLexerMask).signature; }
  std::uint32_t loop_length(State state) { return own_->loop(state >> kLexerBits, state & kLexerMask).length; }
  bool well_formed() const { return own_->well_formed(); }

 private:
  friend class Own;
  static constexpr State kLeaves = 0xffffffff;

  Own* own_;
};

inline Parser::Inner Parser::inside() { return Inner(own_.get()); }

static_assert(FunctionalRecognizer<Parser> && HasDead<Parser> && HasLoopLength<Parser> && HasWellFormed<Parser>);
static_assert(HasWellFormed<Parser::Inner>);
static_assert(HasRestart<Parser> && HasCompact<Parser> && HasFailure<Parser>);

}  // namespace aici::lr
