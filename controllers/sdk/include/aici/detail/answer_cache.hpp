// answer_cache.hpp - a constraint's cache of answers by state, and which answers are computed ahead.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/functional.hpp"
#include "aici/token_set.hpp"
#include "aici/types.hpp"
#include "aici/vocabulary.hpp"

namespace aici {

/// The answer in a state: a mask of allowed tokens, forced tokens, or the end.
struct Answer {
  enum class Kind : std::uint8_t { mask, tokens, stop };
  Kind kind = Kind::stop;
  /// The mask, of the vocabulary's `mask_words()` words, or the tokens.
  std::span<const std::uint32_t> words;
};

/// Caches answers under 64-bit keys, and evicts the least recently used ones beyond `budget` bytes. Answers that were
/// computed ahead, in memory that sequences share, can be pinned (`keep`): they stay, outside the budget.
///
/// A mask of a large vocabulary has 16 KiB and more, but most masks of a constraint are similar, allow few tokens, or
/// forbid few. So if the differences are few, a mask is stored as the tokens in which it differs from another mask,
/// from the empty set, or from all text, 2 bytes each. Masks that are used often are stored whole.
class AnswerCache {
 public:
  explicit AnswerCache(std::size_t budget) : budget_(budget) {}

  /// Returns the answer, or null. A mask is valid until the next call of `find` or `put`, and may be in `scratch`.
  const Answer* find(std::uint64_t key, TokenSet& scratch);
  void put(std::uint64_t key, const Answer& answer);
  void clear();
  /// Pins all current answers. Masks that are slow to reconstruct are stored whole while less than `room` bytes are
  /// pinned.
  void keep(std::size_t room, TokenSet& scratch);
  /// Returns whether an answer is pinned.
  bool keeps(std::uint64_t key) const { return look_kept(key) != nullptr; }
  bool has(std::uint64_t key) const { return const_cast<AnswerCache*>(this)->look(key) != nullptr; }

  /// Returns the used bytes of the budget.
  std::size_t bytes() const { return bytes_; }
  /// Return the bytes and the number of pinned answers.
  std::size_t kept_bytes() const { return kept_bytes_; }
  std::size_t num_kept() const { return kept_.size(); }

 private:
  /// A whole mask that several entries may share. (std::shared_ptr would link 20 kB of the C++ library.)
  struct Whole {
    std::uint32_t users;
    std::unique_ptr<std::uint32_t[]> words;
  };

  enum class Form : std::uint8_t { stop, tokens, mask };
  enum class Base : std::uint8_t { nothing, text, whole };
  struct Entry {
    std::uint64_t key = 0;
    std::uint32_t last_use = 0;
    std::uint32_t uses = 0;
    Form form = Form::stop;
    Base base = Base::nothing;
    /// Which one of `wholes_` is the base.
    std::uint32_t whole = 0;
    /// Tokens, or tokens in which the mask differs from its base.
    std::uint32_t count = 0;
    std::uint32_t data_words = 0;
    /// Tokens. Or differences: how many there are in each 65 536 tokens, then the low halves of all.
    std::unique_ptr<std::uint32_t[]> data;
  };

  const Entry* look_kept(std::uint64_t key) const;
  bool is_kept(const Entry& entry) const { return &entry >= kept_.data() && &entry < kept_.data() + kept_.size(); }
  Entry* look(std::uint64_t key);
  const std::uint32_t* base_of(const Entry& entry) const;
  Entry pack(std::span<const std::uint32_t> mask);
  void unpack(const Entry& entry, TokenSet& out) const;
  void make_whole(Entry& entry, const TokenSet& mask);
  void keep_whole(Entry* entry, std::span<const std::uint32_t> mask);
  void release_base(const Entry& entry);
  void drop_oldest();

  std::size_t budget_, bytes_ = 0, kept_bytes_ = 0;
  std::uint32_t now_ = 0;
  std::uint32_t mask_words_ = 0;
  std::vector<Entry> entries_;
  std::vector<Entry> kept_;
  HashIndex kept_index_;
  std::vector<Whole> wholes_;  ///< those without users have no words and are reusable
  Answer found_;
};

// For example, inside a JSON string nearly all of a mask depends only on the state within the string. The exceptions
// are the few tokens in which the string ends: their remaining bytes depend on the text around the string. The common
// part is computed once for all strings, together with the exits: the trie nodes at which the terminal ends. Later
// masks are copies of this part, plus walks below the exits.

/// A place where a walk leaves the terminal: a node of the trie, and the inner state above it.
struct Exit {
  std::uint32_t node, above;
};

/// All exits with the same inner state above them. The same texts may follow them, so the parts of the trie at and below
/// them are joined: the tokens at a node have the same bytes from the exit on.
struct JoinedExits {
  struct Node {
    /// The place of its first token in `tokens`; they end where those of the next node begin.
    std::uint32_t first;
    std::uint16_t subtree_size;
    std::uint8_t byte, depth;  ///< 1 for an exit
  };
  Exit any;  ///< one of them
  /// In depth-first order; behind the last one is one more.
  std::span<const Node> nodes;
  const TokenId* tokens;
};

/// A recognizer that does not know all continuations: the walk stops at a state that `leaves`.
template <class F>
concept HasExits = requires(F& f, typename F::State state) {
  { f.leaves(state) } -> std::same_as<bool>;
};

/// Optional: returns a state that allows the same as this one and has the same exits, but for texts that begin with a
/// byte of `differ`, which it sets; 0 if there is none. In the middle of a known name, for example, it is the state in
/// any other name, whose mask is then found once for all names: only the byte with which the known name goes on differs.
template <class F>
concept HasSimilar = HasExits<F> && requires(F& f, typename F::State state, ByteSet& differ) {
  { f.similar(state, differ) } -> std::same_as<typename F::State>;
};

/// Optional: returns a state that allows the same and leaves at the same places, for texts of up to *length characters;
/// the state itself if there is no other. Strings that count their characters, for example, have the twins of all strings,
/// and so have unknown names. So their masks are found once.
template <class F>
concept HasTwin = HasExits<F> && requires(F& f, typename F::State state, std::uint32_t* length) {
  { f.twin(state, length) } -> std::same_as<typename F::State>;
};

/// A cache of inner masks by inner state; it keeps the most recently used ones.
class InnerMasks {
 public:
  explicit InnerMasks(std::size_t budget) : masks_(budget) {}

  /// Sets `out` to the mask and calls `visit` for each exit, if the state is known. Calls it for joined exits if there
  /// are some, and it takes them.
  template <class Visit>
  bool find(std::uint32_t inner, TokenSet& out, Visit visit) {
    const Known* known = load(inner, out);
    if (known == nullptr) return false;
    if constexpr (std::invocable<Visit, const JoinedExits&>)
      if (!known->joined.empty()) {
        for (const JoinedExits& exits : known->joined) visit(exits);
        return true;
      }
    for (const Exit& exit : known->exits) visit(exit);
    return true;
  }
  void put(std::uint32_t inner, const TokenSet& mask, std::vector<Exit> exits);
  /// Pins all masks, and joins their exits. It takes as long as the masks took, so it is for those that are often used.
  void keep();
  void clear();

  /// The tokens at and below a node of the trie, kept for the few nodes that are asked for.
  const TokenSet& subtree(const TrieNode* node);
  /// For another mask.
  TokenSet& scratch();

 private:
  /// More exits than this are not remembered: walking anew costs about as much.
  static constexpr std::size_t kMaxExits = 1 << 14, kMaxKnown = 256;
  /// Bytes of masks that `keep` stores whole.
  static constexpr std::size_t kKeptWhole = 48 << 10;
  struct Known {
    std::uint32_t inner;
    std::vector<Exit> exits;
    std::vector<JoinedExits> joined{};
    std::vector<JoinedExits::Node> nodes{};
    std::vector<TokenId> tokens{};

    void join();
    void join(std::span<const TrieNode* const> nodes, unsigned depth);
  };

  const Known* load(std::uint32_t inner, TokenSet& out);

  /// Such as the blank, the line break and the tabulator.
  static constexpr std::size_t kMaxSubtrees = 3;

  AnswerCache masks_;
  std::vector<Known> known_;
  std::vector<std::pair<const TrieNode*, TokenSet>> subtrees_;
  std::unique_ptr<TokenSet> scratch_;
};

/// Optional for a functional recognizer:
///
///   inner(state)          the inner state, or 0 if this state is to be walked as a whole
///   inside()              the recognizer `F::Inner` of inner states; HasExits, State is std::uint32_t
///   outer(state, inner)   the state like `state` that is as far as this inner state
///   inner_masks()         what is known
template <class F>
concept HasInner = FunctionalRecognizer<F> && HasExits<typename F::Inner> &&
                   requires(F& f, typename F::State state, std::uint32_t inner) {
                     { f.inner(state) } -> std::same_as<std::uint32_t>;
                     { f.inside() } -> std::same_as<typename F::Inner>;
                     { f.outer(state, inner) } -> std::same_as<typename F::State>;
                     { f.inner_masks() } -> std::same_as<InnerMasks&>;
                   };

/// Optional with HasInner: the state, if there is one, between the terminal that ends before this byte and the one that
/// begins with it, or 0. It allows the same from this byte on, and has an inner state of its own.
template <class F>
concept HasRestart = HasInner<F> && requires(F& f, typename F::State state, std::uint8_t byte) {
  { f.restart(state, byte) } -> std::same_as<typename F::State>;
};

/// Optional with HasInner, for states to which more than the inner state matters:
///
///   by_text(state)   whether a state that is as far as an inner state is found by appending the text up to there
///   doubts(state)    texts: tokens that they begin with may be forbidden although the inner state allows them
template <class F>
concept HasDoubts = HasInner<F> && requires(F& f, typename F::State state) {
  { f.by_text(state) } -> std::same_as<bool>;
  { f.doubts(state) } -> std::same_as<std::vector<std::string>>;
};

}  // namespace aici

namespace aici::detail {

/// Recognizers whose states have numbers.
template <class F>
concept Explorable = FunctionalRecognizer<F> && std::convertible_to<typename F::State, std::uint32_t>;

/// Recognizers that know the bytes with which literals go on.
template <class F>
concept HasLiterals = HasInner<F> && HasSimilar<typename F::Inner>;

/// A range of allowed bytes, and the number of bytes that the character needs after it.
struct ByteRange {
  std::uint8_t low, high, missing;
};

/// The states that have been seen, in places from 0 on, and which one to visit next.
class Frontier {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  /// Maximum number of states.
  static constexpr std::size_t kMax = 4096;

  /// Returns whether the state with this number is new; it then gets the next place. Beyond a limit, costs are equal.
  bool add(std::uint32_t number, std::uint8_t missing, unsigned cost);
  /// Returns the place of the next state to visit, one of those with the lowest cost, or kNone.
  std::uint32_t next();
  /// Returns the number of bytes to the end of the character.
  std::uint8_t missing(std::uint32_t place) const { return seen_[place].missing; }
  /// Returns the cost of the state that `next` has returned.
  unsigned cost() const { return cost_; }
  /// Returns the ranges of allowed bytes.
  static std::span<const ByteRange> bytes(std::uint8_t missing);

 private:
  static constexpr unsigned kMaxCost = 255;
  struct Seen {
    std::uint32_t number;
    std::uint32_t after;  ///< the one to visit after it, as in `first_`
    std::uint8_t missing;
  };

  std::vector<Seen> seen_;
  HashIndex index_;
  /// The place of the newest state with each cost that is to be visited, plus one; 0 = there is none.
  std::uint32_t first_[kMaxCost + 1] = {};
  unsigned cost_ = 0;
};

/// Visits all states that are reachable from a first one, likely ones first. Bytes of literals cost only the choice
/// between them, and those of names that the grammar does not know cost much. So properties come before deeply nested
/// values. States inside a character are only passed through, since few tokens end there.
template <Explorable F>
class Explorer {
 public:
  using State = typename F::State;

  explicit Explorer(State first) { see(first, 0, 0); }

  /// Returns the next state between two characters, or null after visiting `steps` states. The pointer is valid until
  /// the next call.
  const State* next(F& f, unsigned steps) {
    while (steps-- != 0) {
      const std::uint32_t place = frontier_.next();
      over_ = place == Frontier::kNone;
      if (over_) break;
      visit(f, place);
      if (frontier_.missing(place) == 0) return &found_;
    }
    return nullptr;
  }

  /// Returns whether all states have been visited.
  bool over() const { return over_; }

 private:
  /// The cost of a byte, what is added for each further byte of its character, and what is added where names are known
  /// that the byte does not continue.
  static constexpr unsigned kByte = 2, kFurther = 4, kUnknownName = 6;

  void visit(F& f, std::uint32_t place) {
    found_ = states_[place];
    const unsigned cost = frontier_.cost();
    ByteSet literals;  // the bytes with which literals go on, such as the names of properties
    if constexpr (HasLiterals<F>)
      if (const auto inner = f.inner(found_); inner != 0) f.inside().similar(inner, literals);
    const unsigned choices = HasLiterals<F> ? literals.size() : 0;
    const unsigned other = cost + (choices != 0 ? kByte + kUnknownName : kByte);
    for (const ByteRange& range : Frontier::bytes(frontier_.missing(place)))
      for (unsigned byte = range.low; byte <= range.high; byte++) {
        State next = found_;
        if (!try_append(f, found_, static_cast<std::uint8_t>(byte), &next)) continue;
        unsigned all = other + range.missing * kFurther;
        if constexpr (HasLiterals<F>)
          if (literals.has(static_cast<std::uint8_t>(byte))) all = cost + std::bit_width(choices - 1);
        see(next, range.missing, all);
      }
  }

  void see(State state, std::uint8_t missing, unsigned cost) {
    if (frontier_.add(static_cast<std::uint32_t>(state), missing, cost)) states_.push_back(state);
  }

  Frontier frontier_;
  std::vector<State> states_;
  State found_{};
  bool over_ = false;
};

// After a sequence has ended, its constraint lists the states whose answers it computed, each as a text that leads to
// this state. `aici_warm` computes these answers in the snapshot from which later sequences start.
//
// The texts are not those of the sequence. Each has no detour (no two prefixes lead to the same state) and in each
// place the smallest byte with the same effect. So they depend on the visited states only. For example, a sequence
// that wrote a name into a JSON string reports the beginning of this string, and one that wrote a number of three
// digits reports "0", "00" and "000".

/// Recognizers whose sequences report what they had to compute: those with numbered states and tables that grow. The
/// masks of others cost little, and their controllers stay small.
template <class R>
concept Reports = Explorable<R> && HasCompact<R>;

/// A list of texts, each encoded as what differs from the one before it.
class FoundTexts {
 public:
  /// Adds a text; drops it if the list would be too long.
  void add(std::span<const char> text);
  std::size_t count() const { return count_; }
  std::span<const char> bytes() const { return bytes_; }

  /// Reads the list of AICI_FOUND, which is empty if there is none.
  static FoundTexts of_host();
  /// Returns whether there is another text, which is then `text()`. An invalid list ends early.
  bool next();
  std::string_view text() const { return {last_.data(), last_.size()}; }
  /// Returns a number that differs for different lists.
  std::uint64_t hash() const;

 private:
  static constexpr std::size_t kMaxBytes = 30 << 10;

  // vectors, since a std::string would link 20 kB of the C++ library
  std::vector<char> bytes_, last_;
  std::size_t count_ = 0, at_ = 0;
};

/// The tokens of a sequence, and the places in which an answer was computed.
class Record {
 public:
  void append(TokenId token) {
    if (tokens_.size() < kMax) tokens_.push_back(token);
  }
  void computed() {
    if (tokens_.size() < kMax) places_.push_back(static_cast<std::uint32_t>(tokens_.size()));
  }
  void clear() { tokens_.clear(), places_.clear(); }

  /// Lists a text for each state for which an answer was computed and `is_new(state)` holds.
  template <class F, class IsNew>
  FoundTexts texts(F& f, IsNew is_new) const {
    using State = typename F::State;
    FoundTexts found;
    std::vector<State> states{f.initial()}, listed;
    std::vector<char> text;        // leads from each of `states` to the next
    std::size_t smallest = 0;      // so many bytes of it are the smallest ones
    std::size_t place = 0;
    for (std::size_t i = 0; place < places_.size() && states.size() < kMax; i++) {
      const State state = states.back();
      if (places_[place] == i && is_new(state) && place_of(listed, state) == listed.size()) {
        listed.push_back(state);
        for (; smallest < text.size(); smallest++)
          text[smallest] = smallest_byte(f, states[smallest], text[smallest], states[smallest + 1]);
        found.add(text);
      }
      while (place < places_.size() && places_[place] == i) place++;
      if (i == tokens_.size()) break;
      for (const char byte : vocabulary().token(tokens_[i])) {
        State next{};
        if (!try_append(f, states.back(), static_cast<std::uint8_t>(byte), &next)) return found;
        const std::size_t before = place_of(states, next);
        if (before == states.size()) {
          states.push_back(next), text.push_back(byte);
        } else {
          states.resize(before + 1), text.resize(before);
          smallest = std::min(smallest, before);
        }
      }
    }
    return found;
  }

 private:
  static constexpr std::size_t kMax = 4096;

  /// Returns the size if the state is not there. (std::find would link 20 kB of the C library.)
  template <class State>
  static std::size_t place_of(const std::vector<State>& states, State state) {
    std::size_t place = 0;
    while (place < states.size() && !(states[place] == state)) place++;
    return place;
  }

  template <class F>
  static char smallest_byte(F& f, typename F::State from, char byte, typename F::State to) {
    for (unsigned b = 0; b < static_cast<std::uint8_t>(byte); b++)
      if (typename F::State next{}; try_append(f, from, static_cast<std::uint8_t>(b), &next) && next == to)
        return static_cast<char>(b);
    return byte;
  }

  std::vector<TokenId> tokens_;
  std::vector<std::uint32_t> places_;
};

/// The part of the controller that `aici_found` asks.
class Finder {
 public:
  /// Not pure: the C++ library's function for calls of pure ones would link 20 kB.
  virtual FoundTexts found() { return {}; }
  static inline constinit Finder* only = nullptr;

 protected:
  Finder();
  ~Finder() = default;
};

}  // namespace aici::detail
