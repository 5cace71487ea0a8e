// inner.hpp - the part of a mask that does not depend on the place of a terminal in the grammar.
//
// For example, inside a JSON string nearly all of a mask depends only on the state within the string. The exceptions
// are the few tokens in which the string ends: their remaining bytes depend on the text around the string. The common
// part is computed once for all strings, together with the exits: the trie nodes at which the terminal ends. Later
// masks are copies of this part, plus walks below the exits.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "aici/detail/answer_cache.hpp"
#include "aici/detail/byte_set.hpp"
#include "aici/functional.hpp"
#include "aici/token_set.hpp"
#include "aici/vocabulary.hpp"

namespace aici {

/// A place where a walk leaves the terminal: a node of the trie, and the inner state above it.
struct Exit {
  std::uint32_t node, above;
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

  /// Sets `out` to the mask and calls `visit` for each exit, if the state is known.
  template <class Visit>
  bool find(std::uint32_t inner, TokenSet& out, Visit visit) {
    const std::vector<Exit>* exits = load(inner, out);
    if (exits == nullptr) return false;
    for (const Exit& exit : *exits) visit(exit);
    return true;
  }
  void put(std::uint32_t inner, const TokenSet& mask, std::vector<Exit> exits);
  void clear();

  /// The tokens at and below a node of the trie, kept for the few nodes that are asked for.
  const TokenSet& subtree(const TrieNode* node);
  /// For another mask.
  TokenSet& scratch();

 private:
  /// More exits than this are not remembered: walking anew costs about as much.
  static constexpr std::size_t kMaxExits = 1 << 14, kMaxKnown = 256;
  struct Known {
    std::uint32_t inner;
    std::vector<Exit> exits;
  };

  const std::vector<Exit>* load(std::uint32_t inner, TokenSet& out);

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

}  // namespace aici
