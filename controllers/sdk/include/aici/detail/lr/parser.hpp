// parser.hpp - an LR(1) grammar as a functional recognizer: its lexer, the tables of its parser, and the parser.
//
// The lexer is one lazily built deterministic automaton for all terminals. It reads a lexeme byte by byte until no
// terminal can continue. The lexeme ends where a terminal matched last. A keyword wins over a pattern, and the pattern
// that was added first wins over others.
//
// Where a lexeme is complete but might go on, what follows it is read as well. The states of that have a guard: the
// states of the longer lexemes. They are dead as soon as one of these is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "aici/detail/answer_cache.hpp"
#include "aici/detail/containers.hpp"
#include "aici/functional.hpp"
#include "aici/regex/regex.hpp"

namespace aici::lexer {

/// The number of a terminal, which a lexer produces and a parser consumes.
using Terminal = std::uint16_t;
inline constexpr Terminal kNoTerminal = 0xffff;

/// Sets of terminals, each stored once and known by number: bit sets of the same length. Equal sets have equal numbers;
/// 0 is the empty set.
class TerminalSets {
 public:
  explicit TerminalSets(std::size_t terminals) : words_((terminals + 31) / 32) { intern(empty()); }

  std::vector<std::uint32_t> empty() const { return std::vector<std::uint32_t>(words_); }
  std::uint32_t intern(std::span<const std::uint32_t> set);
  std::span<const std::uint32_t> operator[](std::uint32_t number) const {
    return {arena_.data() + number * words_, words_};
  }
  bool has(std::uint32_t number, Terminal terminal) const {
    return arena_[number * words_ + terminal / 32] >> (terminal % 32) & 1;
  }
  bool meet(std::uint32_t a, std::uint32_t b) const;
  std::size_t size() const { return arena_.size() / words_; }

 private:
  std::size_t words_;
  std::vector<std::uint32_t> arena_;
  HashIndex ids_;
};

inline void add(std::vector<std::uint32_t>& set, Terminal terminal) { set[terminal / 32] |= 1u << terminal % 32; }

class Lexer {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0, kInitial = 1;
  /// Maximum number of states.
  static constexpr State kMaxStates = 1 << 14;
  /// A number for the caller's own use: of a state that no byte continues.
  static constexpr State kUnused = 2;

  explicit Lexer(std::size_t terminals) : sets_(terminals) {}

  /// Adds a nonempty keyword; returns false if it exists already. Call it before any query.
  bool add_keyword(std::string_view text, Terminal terminal);
  void add_pattern(regex::Regex pattern, Terminal terminal);
  /// Call it after the last terminal was added. `ignored` is the terminal that may stand between lexemes, such as
  /// blanks, or kNoTerminal.
  void finish(Terminal ignored);

  /// In a result of `step`: the byte has made a complete lexeme an incomplete one.
  static constexpr State kOvershot = 1u << 31;

  /// Returns the state after `byte`; kDead if no terminal continues. kDead stays dead.
  State append(State state, std::uint8_t byte) { return step(state, byte) & ~kOvershot; }
  /// The same, perhaps with kOvershot.
  State step(State state, std::uint8_t byte) {
    const State next = table_[state << 8 | byte];
    return next != kUnknown ? next : step_slowly(state, byte);
  }
  /// The initial state after a lexeme, guarded by that and by its guard. Returns kDead if there are too many.
  State follow(State before);
  bool guarded(State state) const { return rows_[state].guard != 0; }
  State without_guard(State state) { return with_guard(state, 0); }
  /// Returns the terminal of the lexeme if it ends here, or kNoTerminal.
  Terminal accepted(State state) const { return rows_[state].accepted; }
  /// Returns the set of terminals that the lexeme can still become: for each of them, some text leads to a state
  /// where it is `accepted`.
  std::uint32_t reachable(State state) {
    const std::uint32_t known = rows_[state].reachable;
    return known != kUnknown ? known : find_reachable(state);
  }
  /// Those of them that what is ignored can follow: some text leads to where they are `accepted` and a byte that
  /// ends the lexeme begins one that is ignored.
  std::uint32_t separable(State state) {
    reachable(state);
    return rows_[state].separable;
  }

  /// A way in which a lexeme may end.
  struct Ending {
    Terminal terminal;
    std::vector<State> next;  ///< states after the first byte of the next lexeme
    bool operator==(const Ending&) const = default;
  };
  /// Returns all ways in which the lexeme may end, each once; nothing if it is too far to search.
  std::optional<std::vector<Ending>> endings(State state);

  /// Bytes such that any text made of them (of at most *length bytes) leads to states from which a terminal of the
  /// set `wanted` can be reached.
  Signature loop_signature(State state, std::uint32_t wanted, std::uint32_t* length);

  /// Returns whether all texts of all terminals are well-formed UTF-8.
  bool well_formed() const { return well_formed_; }

  TerminalSets& sets() { return sets_; }
  std::size_t num_states() const { return rows_.size(); }
  std::size_t bytes() const {
    return table_.size() * sizeof(State) + parts_.size() * sizeof(Part) + rows_.size() * sizeof(Row);
  }
  /// Returns why the answers so far are invalid, or null.
  const char* failure() const;

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffff;
  /// Maximum number of states in a guard, and of guards.
  static constexpr std::size_t kMaxGuard = 16, kMaxGuards = 4096;
  /// A node of the trie of keywords.
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;
    Terminal terminal = kNoTerminal;
    bool separable = false;
  };
  struct Pattern {
    regex::Regex regex;
    Terminal terminal;
  };
  /// A state is a node of the trie (0: none), and the live patterns with their states.
  struct Part {
    std::uint32_t pattern;
    regex::Regex::State state;
    bool operator==(const Part&) const = default;
  };
  struct Row {
    std::uint32_t node, first, count;
    std::uint32_t guard = 0;
    Terminal accepted = kNoTerminal;
    std::uint32_t reachable = kUnknown, separable = 0;
  };

  State step_slowly(State state, std::uint8_t byte);
  State intern(std::uint32_t node, std::span<const Part> parts, std::uint32_t guard = 0);
  std::uint32_t intern_guard(std::vector<State> guard);
  State with_guard(State state, std::uint32_t guard);
  std::uint32_t find_reachable(State state);
  void mark_keywords(std::uint32_t node, State state);
  bool can_be_separated(State state);
  std::vector<State> next_lexemes(State state);
  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
  /// Adds the keywords of a node and those that it is the beginning of, and to `separable` those that can be separated.
  void add_keywords(std::uint32_t node, std::vector<std::uint32_t>& all, std::vector<std::uint32_t>& separable) const;

  /// Adds the live patterns of a state.
  void add_patterns(const Row& row, std::vector<std::uint32_t>& set) const;

  TerminalSets sets_;
  std::vector<Node> trie_{2};
  std::vector<Pattern> patterns_;
  std::vector<Part> parts_;
  /// The first one has no states.
  std::vector<std::vector<State>> guards_{1};
  std::vector<Row> rows_;
  std::vector<State> table_;
  HashIndex ids_;
  std::vector<std::uint8_t> ignored_bytes_;  ///< the first bytes of ignored lexemes
  bool full_ = false, well_formed_ = true;
};

}  // namespace aici::lexer

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
