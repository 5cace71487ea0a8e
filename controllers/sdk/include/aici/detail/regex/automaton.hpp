// automaton.hpp - the characters that a pattern distinguishes, and its automata: the nondeterministic one over kinds of
// characters, and the deterministic one over bytes, built lazily.
//
// A pattern distinguishes characters only by its classes. Characters in the same classes form one *kind*, and the
// automaton works on kinds. Kind 0 has the characters that are in no class, which no match contains. The automaton does
// not move between the bytes of a character: decoder nodes represent the bytes so far.
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

#include "aici/detail/containers.hpp"
#include "aici/functional.hpp"
#include "aici/regex/limits.hpp"
#include "aici/signature.hpp"

namespace aici::regex {

inline constexpr std::uint32_t kMaxCodepoint = 0x10FFFF;

/// Returns whether a code point is a scalar value: one that text can contain, so not a surrogate.
inline constexpr bool is_scalar(std::uint32_t c) { return c < 0xD800 || (c > 0xDFFF && c <= kMaxCodepoint); }

struct CodepointRange {
  std::uint32_t low, high;  ///< inclusive
  bool operator==(const CodepointRange&) const = default;
};

/// A set of Unicode scalar values: sorted ranges with a gap between any two, none of them with a surrogate.
class CodepointSet {
 public:
  CodepointSet() = default;
  CodepointSet(std::uint32_t low, std::uint32_t high) { add(low, high); }
  static CodepointSet all() { return CodepointSet(0, kMaxCodepoint); }

  /// Adds low..high without surrogates. Fast if the set has no value above `low`.
  void add(std::uint32_t low, std::uint32_t high);
  void add(const CodepointSet& other);

  CodepointSet complement() const;
  CodepointSet operator&(const CodepointSet& other) const;
  CodepointSet operator-(const CodepointSet& other) const { return *this & other.complement(); }
  CodepointSet operator^(const CodepointSet& other) const;

  bool empty() const { return ranges_.empty(); }
  bool contains(std::uint32_t codepoint) const;
  bool intersects(std::uint32_t low, std::uint32_t high) const;
  const std::vector<CodepointRange>& ranges() const { return ranges_; }
  bool operator==(const CodepointSet&) const = default;

 private:
  void add_scalars(std::uint32_t low, std::uint32_t high);

  std::vector<CodepointRange> ranges_;
};

using KindSetId = std::uint16_t;
inline constexpr KindSetId kNoKinds = 0;

/// Sets of kinds of characters, each stored once.
class KindSets {
 public:
  explicit KindSets(std::size_t words) : words_(words) {
    std::vector<std::uint32_t> none(words);
    add(none);
  }

  /// Returns the number of a set of kinds, given as a bit set; kNoKinds beyond 65535 sets (`overflow`).
  KindSetId add(std::span<const std::uint32_t> set);
  KindSetId unite(KindSetId a, KindSetId b);
  KindSetId intersect(KindSetId a, KindSetId b);
  bool overflow() const { return overflow_; }

  std::span<const std::uint32_t> operator[](KindSetId set) const {
    return {bits_.data() + set * words_, words_};
  }

  /// Calls visit(kind) for each member in order.
  template <class Visit>
  void each(KindSetId set, Visit visit) const {
    for (std::size_t i = 0; i < words_; i++)
      for (std::uint32_t word = bits_[set * words_ + i]; word; word &= word - 1)
        visit(static_cast<std::uint32_t>(i * 32) + static_cast<std::uint32_t>(__builtin_ctz(word)));
  }

  std::size_t bytes() const { return bits_.size() * 4 + ids_.bytes(); }

 private:
  std::size_t words_;
  std::vector<std::uint32_t> bits_;
  HashIndex ids_;
  std::uint32_t count_ = 0;
  bool overflow_ = false;
};

using Kind = std::uint16_t;

class Alphabet {
 public:
  /// The result of a byte inside a character: 0 (no match has such a character, or it is not UTF-8), a kind (the
  /// character is complete), or kNode plus the number of a decoder node.
  using Step = std::uint16_t;
  static constexpr Step kNode = 0x8000;
  /// Upper bound of the numbers of decoder nodes.
  static constexpr std::uint32_t kMaxNodes = 1 << 14;

  /// Returns false if there are too many kinds or decoder nodes.
  bool build(const std::vector<CodepointSet>& classes, const Limits& limits);

  std::uint32_t size() const { return num_kinds_; }
  /// Kinds 1 to dense()-1 have an ASCII character, higher kinds have none.
  std::uint32_t dense() const { return num_dense_; }
  Kind ascii(std::uint8_t byte) const { return ascii_[byte]; }
  /// Returns whether the kind has characters beyond ASCII.
  bool beyond_ascii(Kind kind) const { return beyond_ascii_[kind]; }
  /// The characters beyond ASCII of kinds that have only a few of them, and these kinds.
  struct Rare {
    std::vector<std::uint32_t> characters;
    std::vector<bool> kinds;
  };
  Rare rare() const;
  /// The kinds of class `index` as a bit set of words() words.
  std::span<const std::uint32_t> kinds_of_class(std::uint32_t index) const {
    return {class_kinds_.data() + index * words(), words()};
  }
  std::size_t words() const { return (num_kinds_ + 31) / 32; }

  /// Steps by the first byte of a character: 256 of them, 0 for ASCII.
  const Step* leads() const { return leads_; }
  /// Steps by a later byte: 64 for each node, for the bytes 0x80 to 0xBF.
  const Step* steps() const { return steps_.data(); }
  /// Returns the kinds of a node's possible characters, sorted, without kind 0.
  std::span<const Kind> kinds_below(std::uint32_t node) const {
    return {below_.data() + below_start_[node], below_start_[node + 1] - below_start_[node]};
  }
  /// The same for each node as bits, those from kind 31 on as bit 31.
  const std::uint32_t* kind_bits_below() const { return below_bits_.data(); }
  static std::uint32_t kind_bit(std::uint32_t kind) { return 1u << (kind < 31 ? kind : 31); }
  std::size_t bytes() const;

 private:
  struct Interval {
    std::uint32_t low;  ///< the interval ends where the next one begins
    Kind kind;
  };

  bool find_kinds(const std::vector<CodepointSet>& classes, const Limits& limits);
  Step make_step(std::uint32_t low, std::uint32_t bits, std::uint32_t least);
  Step uniform_step(Kind kind, std::uint32_t bits);
  Step add_node(const Step* steps);

  std::uint32_t num_kinds_ = 0, num_dense_ = 0;
  Kind ascii_[128] = {};
  Step leads_[256] = {};
  std::vector<bool> beyond_ascii_;
  std::vector<std::uint32_t> class_kinds_;
  std::vector<Interval> intervals_;
  std::vector<Step> steps_;
  std::vector<Kind> below_;
  std::vector<std::uint32_t> below_start_, below_bits_;
  HashIndex node_ids_;
  /// Used while steps are built: steps to characters of a single kind, for 6, 12 and 18 bits; 0: not built yet.
  static constexpr std::uint32_t kUniformDepths = 3;
  std::vector<Step> uniform_;
  bool too_many_nodes_ = false;
};

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
