// parser.hpp - a context-free grammar as a functional recognizer.
//
// A state is a set of readings. A reading is the column (columns.hpp) in which a terminal began, and the scanner's
// state within the terminal. Nearly all states have one reading: inside a terminal only the scanner moves, with one
// load per byte. When the terminal ends, the columns give the terminals that may follow, and the answer is cached.
// There are several readings where a terminal ends but may also continue, and where terminals of both kinds of
// Lexemes may follow. Such states have their own numbers and rows of next states. A reading inside an array whose items
// must differ is a position of Arrays: it knows the text so far, and has a state of the parser in which items may be
// equal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "aici/cfg/grammar.hpp"
#include "aici/detail/answer_cache.hpp"
#include "aici/detail/containers.hpp"
#include "aici/detail/cfg/columns.hpp"
#include "aici/detail/cfg/scanner.hpp"
#include "aici/functional.hpp"

namespace aici::cfg {

struct KnownTerminals {
  Scanner scanner;
  InnerMasks inner_masks;
};

/// The engine behind a Parser.
class Engine {
 public:
  using State = std::uint32_t;

  explicit Engine(Grammar grammar, const Limits& limits);
  Engine(const Engine&) = delete;
  /// Must be called first. Returns an error message, or null.
  const char* start(Rule rule);
  Grammar take_terminals();

  State initial() const { return initial_; }
  State append(State state, std::uint8_t byte) {
    if (state < kSeveral) [[likely]] {
      const Scanner::State next = scanner_.append(scanner_of(state), byte);
      const Plain is_plain = plain(next);
      if (is_plain == Plain::kYes) [[likely]]
        return (state & ~kScannerMask) | next;
      if (is_plain == Plain::kDead) return 0;
      return append_one(state, byte, next);
    }
    if (state >= kInArray) return state < kMixed ? append_in_array(state, byte) : append_several(state, byte);
    const State next = rows_.find(state & ~kSeveral, byte);
    return next != Rows::kUnknown ? next : append_several(state, byte);
  }
  bool accepting(State state);
  const std::vector<TokenId>& tokens() const { return grammar_.tokens(); }
  bool has_captures() const { return grammar_.has_captures(); }
  std::vector<Capture> captures(std::string_view text);
  float temperature(State state);
  /// A state with one reading is inside its terminals as far as the scanner is.
  std::uint32_t inner(State state) const {
    return state < kSeveral ? scanner_of(state) : in_array(state) && state < kMixed ? inner_in_array(position_of(state)) : 0;
  }
  bool by_text(State state) const { return in_array(state) && inner(state) != 0; }
  std::vector<std::string> doubts(State state) const;
  State outer(State state, std::uint32_t inner) const { return pack(column_of(state), inner); }
  Scanner& scanner() { return scanner_; }
  bool well_formed() const { return well_formed_; }
  /// Can a state of the scanner be entered without a look at the column?
  bool is_plain(Scanner::State scanner);
  InnerMasks& inner_masks() { return inner_masks_; }
  /// As in functional.hpp, for this controller's vocabulary.
  std::span<const std::uint32_t> rare_nodes() {
    if (!rare_known_) find_rare_nodes();
    return rare_nodes_;
  }

  struct Loop {
    Signature signature;
    std::uint32_t length;
  };
  Loop loop(State state);
  /// The loop of a state of the scanner, in any column.
  Loop inner_loop(Scanner::State scanner);

  bool compact(State* state);
  const char* failure() const;
  std::size_t bytes() const;
  std::size_t num_columns() const { return columns_->size(); }

 private:
  /// A reading is a column and a state of the scanner, or kInArray with a position in an array. So is a state with one
  /// reading; the others have kSeveral or, with positions in arrays, kMixed. Those have no rows.
  static constexpr std::uint32_t kScannerMask = Scanner::kMax - 1, kSeveral = 1u << 31;
  static constexpr std::uint32_t kInArray = kSeveral | 1u << 30, kMaxPositions = 1u << 19;
  static constexpr std::uint32_t kMixed = kInArray | 1u << 29, kMaxMixed = 1u << 19;
  /// Maximum nesting of arrays with different items. The code recurses over them.
  static constexpr std::uint32_t kMaxArrayLevels = 16;
  static constexpr std::uint32_t kMaxColumns = kSeveral >> Scanner::kBits, kMaxSeveral = 1u << 15;
  /// Of masks within terminals, most of which are kept as differences from each other.
  static constexpr std::size_t kInnerBytes = 96 << 10;
  using Reading = State;
  static Reading pack(Column column, Scanner::State scanner) { return column << Scanner::kBits | scanner; }
  static Column column_of(Reading reading) { return reading >> Scanner::kBits; }
  static Scanner::State scanner_of(Reading reading) { return reading & kScannerMask; }
  static bool in_array(Reading reading) { return reading >= kInArray; }
  static Arrays::Id position_of(Reading reading) { return reading & ~kInArray; }

  enum class Plain : std::uint8_t { kUnknown, kNo, kYes, kDead };
  struct Several {
    std::uint32_t first, count;
    bool has_loop = false;
    Loop loop{0, kUnlimited};
  };

  Engine(std::shared_ptr<KnownTerminals> known, Grammar&& grammar, const Limits& limits);
  void find_rare_nodes();
  State append_one(Reading from, std::uint8_t byte, Scanner::State next);
  State append_several(State state, std::uint8_t byte);
  void narrow(State state);
  bool may_end_lexeme(Reading reading) const;
  Plain plain(Scanner::State scanner) { return static_cast<Plain>(scanner_.note(scanner)); }
  void set_plain(Scanner::State scanner, Plain plain) { scanner_.note(scanner) = static_cast<std::uint8_t>(plain); }
  void begin_plain();
  /// Adds the reading that goes on, if it does; the columns take note of what has ended.
  void go_on(Column column, Scanner::State next, std::vector<Reading>& readings);
  /// Adds what begins where those have ended that the columns have taken note of, after a text of the scanner.
  void begin_joined(std::vector<Reading>& readings, Scanner::State before = Scanner::kDead);
  /// Before all terminals that can come.
  State begin(Column column);
  /// The same after a text of the scanner (Scanner::follow).
  State begin(Column column, Scanner::State before);
  State state_of(std::vector<Reading>& readings);
  std::span<const Reading> readings(const State& state) const;
  const Several& several(State state) const {
    return state < kMixed ? several_[state & ~kSeveral] : mixed_[state & ~kMixed];
  }
  Several& several(State state) { return state < kMixed ? several_[state & ~kSeveral] : mixed_[state & ~kMixed]; }

  // arrays.cpp: arrays whose items must differ
  State append_in_array(Reading from, std::uint8_t byte);
  State after(Arrays::Id position) const;
  Arrays::Id step_in_array(Arrays::Id from, std::uint8_t byte);
  bool lives(Arrays::Id position);
  bool lives_for_sure(Arrays::Id position);
  Loop loop_in_array(Arrays::Id position);
  std::uint32_t inner_in_array(Arrays::Id position) const;

  /// A reading that is kept while all others are dropped.
  struct Kept {
    std::size_t number;      ///< of its column and scanner
    Arrays::Id position;     ///< or kNone
    std::vector<Kept> inside;  ///< the readings of the position's state
  };
  struct Keeping {
    std::vector<Column> columns;
    std::vector<Scanner::State> scanners;
  };
  std::vector<Kept> keep(State state, Keeping& keeping) const;
  State restore(const std::vector<Kept>& kept, const Keeping& keeping, const Arrays& old);

  // longest.cpp: terminals of Lexemes::kLongest
  bool is_longest(Reading reading) const { return !in_array(reading) && scanner_.longest(scanner_of(reading)); }
  void end_lexemes(std::vector<Reading>& readings, std::uint8_t byte);
  /// Where both sorts of what a column allows begin; kDead where there is none.
  struct Starts {
    Scanner::State calls = Scanner::kDead, lexemes = Scanner::kDead;
  };
  Starts starts(Column column);
  State append_longest(Reading from, std::uint8_t byte, Scanner::State next);
  void read_lexeme(Reading from, std::uint8_t byte, std::vector<Reading>& readings);
  State settle(std::vector<Reading>& readings);
  bool goes_on_from(Reading reading);
  bool is_guarded(Reading reading) const {
    return scanner_.any_guarded() && !in_array(reading) && scanner_.guarded(scanner_of(reading));
  }
  bool ends_surely(Scanner::State scanner);
  bool has_exit(Scanner::State scanner);
  Column after_lexeme(Reading reading);
  void find_blank();
  bool find_separable(Scanner& all, Scanner::State start, std::uint8_t blank, Terminal terminal, ByteSet& firsts);
  bool separates(Scanner& all, Scanner::State start, std::uint8_t blank, ByteSet& firsts);
  bool is_ignored(Terminal terminal) const;
  Scanner::State exit_of(Scanner::State scanner);
  bool can_end(Reading reading);
  bool loop_lives(Reading reading, Signature signature);
  bool search_end(Reading first);

  Grammar grammar_;
  Rule start_ = 0;
  Limits limits_;
  Network network_;
  Scanner scanner_;
  std::unique_ptr<Columns> columns_;
  /// Memory for columns and states beyond which `compact` drops most of them.
  std::size_t most_kept_ = limits_.kept_bytes;
  State initial_ = 0;

  /// By column; 0 = not known.
  std::vector<State> begins_;
  /// Where a terminal is complete: the state; of one of kLongest, the column.
  std::unordered_map<Reading, State> ends_;
  /// Of terminals of kLongest where they are not plain: can the text be brought to an end?
  std::unordered_map<Reading, bool> can_end_;
  /// A byte of ignored text, and whether it separates all terminals; the first bytes of texts that can follow it.
  std::optional<std::uint8_t> blank_;
  bool separable_ = false;
  ByteSet firsts_;
  /// `blank_`, and others that separate all terminals.
  std::vector<std::uint8_t> blanks_;
  /// By state of the scanner: the next one that a lexeme may leave, or kDead.
  std::unordered_map<Scanner::State, Scanner::State> exits_;
  /// By reading, and by state of the scanner in any column: the signature of its loop if the loop has no dead end.
  std::unordered_map<Reading, Signature> loops_;
  Arrays arrays_;
  /// Number of arrays with different items around the one whose state is being computed.
  std::uint32_t array_level_ = 0;
  std::vector<Reading> readings_;
  std::vector<Several> several_, mixed_;
  Rows rows_;
  HashIndex ids_, mixed_ids_;
  bool full_ = false, well_formed_, rare_known_ = false;
  std::vector<std::uint32_t> rare_nodes_;
  InnerMasks inner_masks_{kInnerBytes};
};

/// The recognizer inside a terminal, which uses only the scanner.
class Inside {
 public:
  using State = std::uint32_t;

  explicit Inside(Engine& engine) : engine_(engine) {}

  State initial() const { return 0; }
  State append(State state, std::uint8_t byte) {
    const Scanner::State next = engine_.scanner().append(state, byte);
    if (next == Scanner::kDead)
      return engine_.scanner().longest(state) && engine_.scanner().accepting(state) ? kLeaving : State{0};
    return engine_.is_plain(next) ? next : kLeaving;
  }
  bool byte_allowed(State state, std::uint8_t byte) { return append(state, byte) != 0; }
  bool dead(State state) const { return state == 0; }
  bool leaves(State state) const { return state == kLeaving; }
  bool special_allowed(State, SpecialToken) const { return false; }
  Signature loop_signature(State state) {
    return leaves(state) ? 0 : engine_.inner_loop(state).signature;
  }
  Signature multibyte_signature(State state) {
    return leaves(state) ? 0 : engine_.scanner().multibyte_signature(state);
  }
  std::uint32_t loop_length(State state) {
    return leaves(state) ? kUnlimited : engine_.inner_loop(state).length;
  }
  bool well_formed() const { return engine_.well_formed(); }
  std::span<const std::uint32_t> rare_nodes() { return engine_.rare_nodes(); }
  ByteSet next_bytes(State state) {
    const bool may_end = engine_.scanner().longest(state) && engine_.scanner().accepting(state);
    return may_end ? ByteSet::all() : engine_.scanner().next_bytes(state);
  }
  State twin(State state, std::uint32_t* length) { return engine_.scanner().twin(state, length); }
  State similar(State state, ByteSet& differ) { return engine_.scanner().without_names(state, differ); }

 private:
  static constexpr State kLeaving = 0xffffffff;

  Engine& engine_;
};

/// A parser for a grammar. It is small and cheap to move, since the engine is on the heap.
class Parser {
 public:
  /// Equal numbers are equal states, until `compact` drops all states.
  using State = Engine::State;

  /// Returns nothing and fills in `problem` if the grammar has no text or is too large.
  static std::optional<Parser> make(Grammar grammar, Rule start, std::string* problem, const Limits& limits = {});

  State initial() const { return engine_->initial(); }
  State append(State state, std::uint8_t byte) { return engine_->append(state, byte); }
  bool byte_allowed(State state, std::uint8_t byte) { return append(state, byte) != 0; }
  bool dead(State state) const { return state == 0; }
  /// The sequence may end where the text is complete.
  bool special_allowed(State state, SpecialToken token) {
    return token == SpecialToken::eos && engine_->accepting(state);
  }
  std::span<const TokenId> tokens() const { return engine_->tokens(); }
  bool has_captures() const { return engine_->has_captures(); }
  /// Returns the captures of a complete text (Grammar::capture). If there are several readings of it, they are those of
  /// one. Returns none, with a warning in the log, if that takes too much memory.
  std::vector<Capture> captures(std::string_view text) { return engine_->captures(text); }
  /// The highest temperature of the terminals that the next byte may continue or begin.
  float temperature(State state) { return engine_->temperature(state); }
  Signature loop_signature(State state) { return engine_->loop(state).signature; }
  std::uint32_t loop_length(State state) { return engine_->loop(state).length; }
  bool well_formed() const { return engine_->well_formed(); }
  std::span<const std::uint32_t> rare_nodes() { return engine_->rare_nodes(); }
  using Inner = Inside;
  std::uint32_t inner(State state) const { return engine_->inner(state); }
  Inside inside() { return Inside(*engine_); }
  State outer(State state, std::uint32_t inner) const { return engine_->outer(state, inner); }
  bool by_text(State state) const { return engine_->by_text(state); }
  std::vector<std::string> doubts(State state) const { return engine_->doubts(state); }
  InnerMasks& inner_masks() { return engine_->inner_masks(); }
  /// Between masks: forgets columns and states if there are many.
  bool compact(State* state) { return engine_->compact(state); }
  std::size_t bytes() const { return engine_->bytes(); }
  const char* failure() const { return engine_->failure(); }

  /// Returns a grammar without rules that has this parser's terminals. A parser for it begins with what this one knows.
  Grammar terminals() && { return engine_->take_terminals(); }

  const Engine& engine() const { return *engine_; }

 private:
  explicit Parser(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  std::unique_ptr<Engine> engine_;
};

/// Makes a parser; for controllers' constructors. An invalid grammar refuses the request.
Parser make_or_fail(Grammar grammar, Rule start);

static_assert(FunctionalRecognizer<Parser> && HasDead<Parser> && HasLoopLength<Parser>);
static_assert(HasTokens<Parser> && HasTemperature<Parser> && HasCaptures<Parser>);
static_assert(HasCompact<Parser> && HasFailure<Parser> && HasDoubts<Parser>);
static_assert(HasWellFormed<Parser> && HasWellFormed<Inside> && HasSimilar<Inside> && HasNextBytes<Inside> &&
              HasTwin<Inside> && HasRareNodes<Inside> && HasRareNodes<Parser>);

}  // namespace aici::cfg
