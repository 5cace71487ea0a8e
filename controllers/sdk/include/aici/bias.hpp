// bias.hpp - from a constraint on bytes to a set of tokens: the walk over the trie.
//
// The walk goes through the nodes in order. At a node it asks whether the byte on its edge is allowed after
// the text above it; if not, the node's whole subtree is skipped. Two things save most of the work:
//  - where the state above a node allows every text of certain kinds of bytes (`loop_signature`), a subtree
//    of only these kinds is taken whole: its tokens are a range of `order`;
//  - if the first state is of this sort, or a step away from one, all tokens of these kinds are taken at the
//    start, by a few operations on masks; subtrees that hold nothing else are passed over.
#pragma once

#include <cstdint>
#include <type_traits>

#include "aici/functional.hpp"
#include "aici/recognizer.hpp"
#include "aici/token_set.hpp"
#include "aici/types.hpp"
#include "aici/vocabulary.hpp"

namespace aici {

namespace detail {

/// The deepest node of a trie; longer tokens are checked one by one.
inline constexpr unsigned kMaxDepth = 254;

/// Sets `out` to all tokens of text that have only these kinds of bytes; or only some of them, or nothing, if
/// the walk is the faster way to the rest. Returns the kinds that it took.
Signature start_with(const Vocabulary& vocab, Signature kinds, std::uint32_t* out);

/// Adds the tokens below a node.
inline void take_subtree(const TokenId* order, const TrieNode& node, std::uint32_t* out) {
  const TokenId* end = order + (&node + node.subtree_size())->first();
  for (const TokenId* t = order + node.first(); t != end; t++) out[*t >> 5] |= 1u << (*t & 31);
}

/// Gives duplicates the bits of the tokens in the trie whose bytes they share.
void copy_duplicates(const Vocabulary& vocab, std::uint32_t* out);

/// Sets or clears the bits of all special tokens of this sort.
void allow_special(const Vocabulary& vocab, SpecialToken which, std::uint32_t* out);

/// Removes the tokens below a node.
inline void drop_subtree(const TokenId* order, const TrieNode& node, std::uint32_t* out) {
  const TokenId* end = order + (&node + node.subtree_size())->first();
  for (const TokenId* t = order + node.first(); t != end; t++) out[*t >> 5] &= ~(1u << (*t & 31));
}

/// What was taken at the start, as the walk sees it. `kinds` may be a guess: more than the first state
/// allows. The walk then removes what it finds to be forbidden.
///
/// The path to a node holds kinds only, down to some depth. For bytes from 0x80 on that depends on the
/// characters they make, so there are two depths: surely, and perhaps.
class Start {
 public:
  Start(const Vocabulary& vocab, Signature kinds, bool guessed)
      : kinds_(kinds), guess_(guessed ? kinds : 0), class_of_(vocab.classes().of) {}

  /// Was everything below `node` taken?
  bool took_all(const TrieNode& node, unsigned depth) const {
    return depth <= surely_ + 1 && (node.signature & ~kinds_) == 0;
  }
  /// May something below `node` have been taken without being allowed?
  bool took_some(const TrieNode& node, unsigned depth) const {
    return depth <= perhaps_ + 1 && (guess_ & bits(node.byte())) != 0;
  }
  /// The walk goes below `node`.
  void descend(const TrieNode& node, unsigned depth) {
    const Signature bit = bits(node.byte());
    if (depth <= surely_ + 1) surely_ = (bit & ~kinds_) == 0 ? depth : depth - 1;
    if (guess_ != 0 && depth <= perhaps_ + 1) perhaps_ = (bit & guess_) != 0 ? depth : depth - 1;
  }

 private:
  Signature bits(std::uint8_t byte) const {
    return byte < 0x80 ? 1u << class_of_[byte] : kWellFormedUtf8 | kOtherBytes;
  }

  Signature kinds_, guess_;
  const std::uint8_t* class_of_;
  unsigned surely_ = 0, perhaps_ = 0;
};

/// Bytes that texts begin with. A state from which all of them, or all but one, lead to equally free
/// states is a small detour from those: most of what they allow it allows too.
inline constexpr std::uint8_t kSamples[] = {' ', 'e', 'S', '0'};

/// A guess at the kinds to start with, from what the first state allows and what the states after the
/// samples do (0 where the sample is forbidden).
Signature guess_kinds(Signature free, const Signature (&after)[sizeof kSamples]);

template <class F>
Signature loop_signature(F& f, typename F::State state) {
  if constexpr (HasLoopSignature<F>)
    return f.loop_signature(state);
  else
    return 0;
}
template <class F>
std::uint32_t loop_length(F& f, typename F::State state) {
  if constexpr (HasLoopLength<F>)
    return f.loop_length(state);
  else
    return kUnlimited;
}
template <class R>
Signature loop_signature(R& r) {
  if constexpr (StackLoopSignature<R>)
    return r.loop_signature();
  else
    return 0;
}

}  // namespace detail

/// Sets `out` to the tokens that `f` allows in `state`.
template <FunctionalRecognizer F>
void compute_bias(F& f, typename F::State state, TokenSet& out) {
  using State = typename F::State;
  static_assert(std::is_trivially_copyable_v<State> && sizeof(State) <= 32,
                "a functional state is a small value: keep larger ones in a table and pass an index");
  struct Frame {
    State state;
    Signature free;
    std::uint32_t length;  ///< for which `free` holds
  };
  Frame stack[detail::kMaxDepth + 1];
  const Vocabulary& vocab = vocabulary();
  std::uint32_t* const bits = out.data();
  const TokenId* const order = vocab.order();

  stack[0] = {state, detail::loop_signature(f, state), detail::loop_length(f, state)};
  Signature kinds = 0;
  if constexpr (HasLoopSignature<F>) {
    Signature after[sizeof detail::kSamples] = {};
    for (std::size_t i = 0; i < sizeof detail::kSamples; i++)
      if (State next = state; try_append(f, state, detail::kSamples[i], &next)) after[i] = f.loop_signature(next);
    kinds = detail::guess_kinds(stack[0].free, after);
  }
  kinds = detail::start_with(vocab, kinds, bits);
  detail::Start start(vocab, kinds, (kinds & ~stack[0].free) != 0 || stack[0].length != kUnlimited);
  const TrieNode* node = vocab.nodes() + 1;
  const TrieNode* const end = vocab.nodes() + vocab.num_nodes();
  while (node < end) {
    const std::uint32_t size = node->subtree_size();
    const unsigned depth = node->depth();
    const Frame& above = stack[depth - 1];
    if constexpr (HasLoopSignature<F>) {
      if ((node->signature & ~above.free) == 0 && node->height() <= above.length) {
        if (!start.took_all(*node, depth)) detail::take_subtree(order, *node, bits);
        node += size;
        continue;
      }
    }
    State next = above.state;
    if (!try_append(f, above.state, node->byte(), &next)) {
      if constexpr (HasLoopSignature<F>)
        if (start.took_some(*node, depth)) detail::drop_subtree(order, *node, bits);
      node += size;
      continue;
    }
    const TokenId token = node->token();
    if (token != TrieNode::kNoToken) bits[token >> 5] |= 1u << (token & 31);
    if (size > 1) {
      stack[depth] = {next, detail::loop_signature(f, next), detail::loop_length(f, next)};
      if constexpr (HasLoopSignature<F>) start.descend(*node, depth);
    }
    node++;
  }

  detail::copy_duplicates(vocab, bits);
  for (TokenId token : vocab.long_tokens()) {
    State now = state;
    bool allowed = true;
    for (char byte : vocab.token(token)) {
      State next = now;
      allowed = try_append(f, now, static_cast<std::uint8_t>(byte), &next);
      if (!allowed) break;
      now = next;
    }
    allowed ? out.allow(token) : out.forbid(token);
  }
  for (SpecialToken which : kSpecialTokens)
    if (f.special_allowed(state, which)) detail::allow_special(vocab, which, bits);
}

/// Sets `out` to the tokens that `r` allows in its top state. The stack is as before when this returns.
template <ByteStack R>
void compute_bias(R& r, TokenSet& out) {
  const Vocabulary& vocab = vocabulary();
  std::uint32_t* const bits = out.data();
  const TokenId* const order = vocab.order();
  Signature free[detail::kMaxDepth + 1];

  free[0] = detail::loop_signature(r);
  Signature kinds = 0;
  if constexpr (StackLoopSignature<R>) {
    Signature after[sizeof detail::kSamples] = {};
    for (std::size_t i = 0; i < sizeof detail::kSamples; i++)
      if (r.try_push_byte(detail::kSamples[i])) {
        after[i] = r.loop_signature();
        r.pop_bytes(1);
      }
    kinds = detail::guess_kinds(free[0], after);
  }
  kinds = detail::start_with(vocab, kinds, bits);
  detail::Start start(vocab, kinds, (kinds & ~free[0]) != 0);
  const TrieNode* node = vocab.nodes() + 1;
  const TrieNode* const end = vocab.nodes() + vocab.num_nodes();
  unsigned height = 0;  // bytes pushed
  while (node < end) {
    const std::uint32_t size = node->subtree_size();
    const unsigned depth = node->depth();
    if constexpr (StackLoopSignature<R>) {
      if ((node->signature & ~free[depth - 1]) == 0) {
        if (!start.took_all(*node, depth)) detail::take_subtree(order, *node, bits);
        node += size;
        continue;
      }
    }
    if (height != depth - 1) {
      r.pop_bytes(height - (depth - 1));
      height = depth - 1;
    }
    if (!r.try_push_byte(node->byte())) {
      if constexpr (StackLoopSignature<R>)
        if (start.took_some(*node, depth)) detail::drop_subtree(order, *node, bits);
      node += size;
      continue;
    }
    height = depth;
    const TokenId token = node->token();
    if (token != TrieNode::kNoToken) bits[token >> 5] |= 1u << (token & 31);
    if (size > 1) {
      free[depth] = detail::loop_signature(r);
      if constexpr (StackLoopSignature<R>) start.descend(*node, depth);
    }
    node++;
  }
  if (height != 0) r.pop_bytes(height);

  detail::copy_duplicates(vocab, bits);
  for (TokenId token : vocab.long_tokens()) {
    std::uint32_t pushed = 0;
    const std::string_view text = vocab.token(token);
    while (pushed < text.size() && r.try_push_byte(static_cast<std::uint8_t>(text[pushed]))) pushed++;
    if (pushed != 0) r.pop_bytes(pushed);
    pushed == text.size() ? out.allow(token) : out.forbid(token);
  }
  for (SpecialToken which : kSpecialTokens)
    if (r.special_allowed(which)) detail::allow_special(vocab, which, bits);
  r.trie_finished();
}

/// The set of tokens that a recognizer allows.
template <ByteStack R>
TokenSet compute_bias(R& r) {
  TokenSet out;
  compute_bias(r, out);
  return out;
}

}  // namespace aici
