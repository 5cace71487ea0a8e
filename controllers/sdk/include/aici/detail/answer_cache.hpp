// answer_cache.hpp - a constraint's cache of answers by state, and of the part of a mask that does not depend on the
// place of a terminal in the grammar.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "aici/detail/byte_set.hpp"
#include "aici/detail/hash_index.hpp"
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
