// automaton.hpp - the automata of a pattern: the nondeterministic one over kinds of characters, and the deterministic
// one over bytes, built lazily.
//
// A state between two characters is a set of states of the Nfa and has a row in `table_`. The state's number is the
// position of the row. A row has a header and then the next state for each kind of character with an ASCII member. So a
// step by an ASCII byte is one load: table_[state + slot_[byte]].
//
// A state inside a multi-byte character is not stored: its number packs the state before the character and the
// decoder's node. At the end of the character, its kind selects the next state. Kinds without an ASCII member are
// stored as runs of kinds with the same next state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "aici/detail/byte_set.hpp"
#include "aici/detail/hash_index.hpp"
#include "aici/detail/regex/alphabet.hpp"
#include "aici/functional.hpp"
#include "aici/regex/limits.hpp"
#include "aici/signature.hpp"

namespace aici::regex {

/// Conditions on the characters to the left and right of a position. `word` is \w; the Ascii variants count only ASCII
/// characters as word characters.
enum class Assertion : std::uint8_t {
  kTextStart,  ///< \A, and ^ without (?m)
  kTextEnd,    ///< \z, and $ without (?m)
  kLineStart,  ///< ^ with (?m): at the start or after \n
  kLineEnd,    ///< $ with (?m): at the end or before \n
  kWordBoundary,
  kNoWordBoundary,
  kWordStart,      ///< \b{start}: not word before, word after
  kWordEnd,        ///< \b{end}: word before, not word after
  kWordStartHalf,  ///< \b{start-half}: not word before
  kWordEndHalf,    ///< \b{end-half}: not word after
  kAsciiWordBoundary,
  kAsciiNoWordBoundary,
  kAsciiWordStart,
  kAsciiWordEnd,
  kAsciiWordStartHalf,
  kAsciiWordEndHalf,
};

inline constexpr bool is_word_assertion(Assertion a) { return a >= Assertion::kWordBoundary; }
inline constexpr bool is_ascii_assertion(Assertion a) { return a >= Assertion::kAsciiWordBoundary; }
inline constexpr bool is_line_assertion(Assertion a) {
  return a == Assertion::kLineStart || a == Assertion::kLineEnd;
}

using NfaId = std::uint16_t;

struct NfaState {
  enum class Op : std::uint8_t {
    kMatch,      ///< the text may end here
    kKinds,      ///< a character of the set `kinds`, then `out`
    kSplit,      ///< `out` or `alt`
    kAssert,     ///< `assertion` holds here, then `out`
    kAhead,      ///< a kLookEnd can be reached from `alt`, then `out`
    kNotAhead,   ///< none can be reached, then `out`
    kBehind,     ///< the kLookEnd of this number has been reached from `alt`, then `out`
    kNotBehind,  ///< it has not, then `out`
    kLookEnd,    ///< the end of a look-behind, or of a look-ahead if its number is 0
  };
  /// The number of a look-behind is in `kinds`. They are numbered from 1, inner ones after outer ones.
  std::uint16_t look() const { return kinds; }
  Op op;
  Assertion assertion = Assertion::kTextStart;
  KindSetId kinds = kNoKinds;
  NfaId out = 0, alt = 0;
  bool operator==(const NfaState&) const = default;
};

/// State 0 is the only kMatch. After `trim`, a state is live if a match can be reached from it, or the end of the
/// look-around that it belongs to. So without look-arounds, a set of states can reach a match if and only if it has a
/// live state.
struct Nfa {
  static constexpr NfaId kMatch = 0;

  std::vector<NfaState> states;
  std::vector<bool> live;
  NfaId start = 0;

  /// Computes the live states. States with an empty set of kinds are dead.
  void trim();
};

class SubsetStepper;

/// A compiled pattern, from which the automaton is built.
struct Program {
  explicit Program(std::size_t words) : sets(words) {}

  Alphabet alphabet;
  KindSets sets;
  Nfa nfa;
  /// Whether the order of states says which match is preferred. The others are left out (SubsetStepper).
  bool ordered = false;
};

class Automaton {
 public:
  using State = std::uint32_t;
  static constexpr State kDead = 0;

  Automaton(std::unique_ptr<Program> program, const Limits& limits);
  ~Automaton();

  State initial() const { return initial_; }
  /// Returns the next state; kDead if no match can be reached. kDead stays dead.
  State append(State state, std::uint8_t byte) {
    if (state >= kInside) {
      const std::uint32_t node = state & kNodeMask;
      const Alphabet::Step step = (byte & 0xC0) == 0x80 ? steps_[node << 6 | (byte & 63u)] : Alphabet::Step{0};
      return inside((state >> kNodeBits & kRowMask) * stride_, state & ~kNodeMask, step);
    }
    const State next = table_[state + slot_[byte]];
    if (next != kUnknown) [[likely]]
      return next;
    return append_slowly(state, byte);
  }
  bool accepting(State state) const { return state < kInside && table_[state + kFlags] & kAccepting; }
  /// Returns whether the state is within a character. Bytes from 0x80 to 0xBF can follow there, and only there.
  static bool within_character(State state) { return state >= kInside; }
  /// Returns whether no byte can follow.
  bool ended(State state) {
    if (state >= kInside) return false;
    if (!built(state)) build(state);
    return table_[state + kLive] == 0;
  }
  Signature loop_signature(State state) {
    if (state >= kInside) return 0;
    if (!(table_[state + kFlags] & kHasLoop)) find_loop(state);
    return table_[state + kLoop];
  }
  /// Returns the maximum number of bytes for which loop_signature holds, or kUnlimited.
  std::uint32_t loop_length(State state) {
    return loop_signature(state) ? table_[state + kLoopLength] : kUnlimited;
  }
  bool forced_byte(State state, std::uint8_t* byte);
  void add_next_bytes(State state, ByteSet& bytes);
  void set_byte_classes(ByteClasses classes);
  std::span<const std::uint32_t> leave_out_rare();

  bool exhausted() const { return exhausted_; }
  bool compact(State* state);
  std::size_t bytes() const;
  std::uint32_t num_states() const { return static_cast<std::uint32_t>(table_.size()) / stride_; }

 private:
  /// States from here on are inside a character: kInside | row number << 14 | decoder node.
  static constexpr State kInside = 0x80000000;
  static constexpr std::uint32_t kNodeBits = 14, kNodeMask = (1 << kNodeBits) - 1, kMaxRows = 1 << 17;
  static_assert(Alphabet::kMaxNodes == 1 << kNodeBits);
  static constexpr State kUnknown = 0xffffffff;
  /// The words of a row's header; the entries of kinds follow.
  enum Header : std::uint32_t {
    kBeyondAscii,  ///< kUnknown, where slot_ sends bytes from 0x80 on; 0 in the dead row
    kFlags,        ///< kAccepting, kHasLoop; the row's number
    kSet,          ///< position in arena_ of the set of nondeterministic states: its size, then the states
    kRuns,         ///< position in runs_ of the kinds without ASCII
    kLive,         ///< bit k: kind k is allowed, for k < 31; bit 31: some kind from 31 on is
    kLoop,         ///< the loop signature, if kHasLoop
    kLoopLength,   ///< and for how many bytes it holds
    kHeaderWords
  };
  static constexpr std::uint32_t kAccepting = 1u << 31, kHasLoop = 1u << 30, kRowMask = kMaxRows - 1;
  /// In runs_: kinds from `kind` to that of the next run lead to `target`. The last one has kLastKind.
  static constexpr std::uint32_t kLastKind = 0xffff;
  struct Run {
    std::uint32_t kind;
    State target;
  };

  State append_slowly(State state, std::uint8_t byte);
  /// The state after the bytes of a character that began at `row` have led the decoder by `step`; `prefix` is
  /// kInside with the number of the row.
  State inside(State row, State prefix, Alphabet::Step step) const {
    if (step & Alphabet::kNode) {
      const std::uint32_t node = step & kNodeMask, live = table_[row + kLive] & kind_bits_below_[node];
      if (live == 0 || (live == 1u << 31 && !can_take_any(row, node))) return kDead;
      return prefix | node;
    }
    return step < num_dense_ ? table_[row + kHeaderWords + step] : next_by_kind(row, step);
  }
  State next_by_kind(State row, std::uint32_t kind) const;
  bool can_take_any(State row, std::uint32_t node) const;
  bool built(State row) const { return table_[row + kHeaderWords] != kUnknown; }
  void build(State row);
  State intern(std::span<const NfaId> set);
  State add_row(std::span<const NfaId> set, std::uint32_t hash);
  std::span<const NfaId> set_of(State row) const {
    const NfaId* at = arena_.data() + table_[row + kSet];
    return {at + 1, *at};
  }
  void start_over();

  // the search for loops
  void find_loop(State row);
  bool covered(State row, const std::vector<State>& home) const;
  template <class Visit>
  void each_transition(State row, Visit visit);
  Signature allowed_bits(State row);
  template <class Visit>
  void each_run(State row, Visit visit) const;
  Signature find_closed(State row, std::size_t most_states);
  Signature find_repeating(State row);
  /// States in the order of a search, and the number of the first state of each level.
  struct Levels {
    std::vector<State> states;
    std::vector<std::size_t> first;
  };
  Signature find_bounded(State row, std::uint32_t* length, Levels& levels);
  void set_loop(State state, Signature bits, std::uint32_t length);
  void share_loop(const Levels& levels, Signature bits, std::uint32_t length);
  std::uint32_t weight(Signature bits) const;
  bool is_rare(std::uint32_t kind) const { return !rare_.kinds.empty() && rare_.kinds[kind]; }

  std::unique_ptr<Program> program_;
  Limits limits_;
  std::unique_ptr<SubsetStepper> stepper_;
  State initial_ = kDead;
  const Alphabet::Step* steps_;
  const std::uint32_t* kind_bits_below_;
  std::uint32_t num_dense_, stride_;
  std::uint8_t slot_[256];
  /// The ASCII characters of each kind, and the bits of kLive of the kinds that have others.
  std::vector<ByteSet> ascii_bytes_;
  std::uint32_t live_beyond_ascii_ = 0;
  std::vector<State> table_;
  std::vector<NfaId> arena_;
  std::vector<Run> runs_;
  HashIndex ids_;
  bool exhausted_ = false;
  std::vector<State> group_target_;  ///< scratch of build()

  std::vector<Signature> kind_bits_;  ///< per kind with ASCII: the signature bits of its characters
  std::uint8_t bit_weight_[32] = {};
  Signature known_bits_ = 0;
  /// The classes behind these bits; null if none are set.
  const std::uint8_t* byte_classes_ = nullptr;
  /// Characters that kWellFormedUtf8 in loop signatures does not stand for.
  Alphabet::Rare rare_;
  bool leaves_out_rare_ = false;
  /// Per nondeterministic state: whether it leads to itself; -1: not computed yet.
  std::vector<std::int8_t> repeats_;
};

}  // namespace aici::regex
