// bias.hpp - computes the set of tokens that a constraint on bytes allows, by a walk over the trie.
//
// The walk visits the nodes in order. If the constraint does not allow the byte on a node's edge after the text above
// it, the walk skips the node's subtree. Two shortcuts save most of the work:
//  - If the state above a node allows every text of certain kinds of bytes (`loop_signature`), the walk takes a subtree
//    of only these kinds as a whole: its tokens are a range of `order`.
//  - If the first state has such kinds, or is one step away from a state that has, the walk starts from all tokens of
//    these kinds, by a few operations on masks, and skips subtrees of only these kinds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "aici/detail/answer_cache.hpp"
#include "aici/functional.hpp"
#include "aici/recognizer.hpp"
#include "aici/token_set.hpp"
#include "aici/types.hpp"
#include "aici/vocabulary.hpp"

namespace aici {

namespace detail {

/// The deepest node of a trie; longer tokens are checked one by one.
inline constexpr unsigned kMaxDepth = 254;

/// Sets `out` to all tokens with text that have only these kinds of bytes, or fewer of them if the walk finds the rest
/// faster. Returns the kinds that it took.
Signature start_with(const Vocabulary& vocab, Signature kinds, std::uint32_t* out);

/// Adds the tokens below a node.
inline void take_subtree(const TokenId* order, const TrieNode& node, std::uint32_t* out) {
  const TokenId* end = order + (&node + node.subtree_size())->first();
  for (const TokenId* t = order + node.first(); t != end; t++) out[*t >> 5] |= 1u << (*t & 31);
}

/// Returns the text on the path to a node, without the node's byte.
inline std::string_view text_above(const TrieNode& node) {
  const Vocabulary& vocab = vocabulary();
  return vocab.token(vocab.order()[node.first()]).substr(0, node.depth() - 1);
}

/// Copies the bit of each token in the trie to its duplicates.
void copy_duplicates(const Vocabulary& vocab, std::uint32_t* out);

/// Allows all special tokens of this kind.
void allow_special(const Vocabulary& vocab, SpecialToken which, std::uint32_t* out);

/// Removes the tokens below a node.
inline void drop_subtree(const TokenId* order, const TrieNode& node, std::uint32_t* out) {
  const TokenId* end = order + (&node + node.subtree_size())->first();
  for (const TokenId* t = order + node.first(); t != end; t++) out[*t >> 5] &= ~(1u << (*t & 31));
}

/// The tokens that were taken at the start. `kinds` may be a guess that exceeds the kinds that the first state
/// allows; the walk then removes forbidden tokens.
///
/// Down to some depth, the path to a node has only these kinds. For bytes from 0x80 on this depends on their
/// characters, so there are two depths: certain (`surely_`) and possible (`perhaps_`).
class Start {
 public:
  /// `multibyte` has the kinds of bytes from 0x80 on that paths may have.
  Start(const Vocabulary& vocab, Signature kinds, bool guessed, Signature multibyte)
      : kinds_(kinds), guess_(guessed ? kinds : 0), multibyte_(multibyte), class_of_(vocab.classes().of) {}

  /// Returns whether all tokens below `node` were taken, but for those with kinds in `except`.
  bool took_all(const TrieNode& node, unsigned depth, Signature except = 0) const {
    return depth <= surely_ + 1 && (node.signature & ~(kinds_ | except)) == 0;
  }
  /// Returns whether a token below `node` may have been taken although it is forbidden.
  bool took_some(const TrieNode& node, unsigned depth) const {
    return depth <= perhaps_ + 1 && (guess_ & bits(node.byte())) != 0;
  }
  /// Follows the walk below `node`.
  void descend(const TrieNode& node, unsigned depth) {
    const Signature bit = bits(node.byte());
    if (depth <= surely_ + 1) surely_ = (bit & ~kinds_) == 0 ? depth : depth - 1;
    if (guess_ != 0 && depth <= perhaps_ + 1) perhaps_ = (bit & guess_) != 0 ? depth : depth - 1;
  }

 private:
  Signature bits(std::uint8_t byte) const {
    return byte < 0x80 ? 1u << class_of_[byte] : multibyte_;
  }

  Signature kinds_, guess_, multibyte_;
  const std::uint8_t* class_of_;
  unsigned surely_ = 0, perhaps_ = 0;
};

/// Frequent first bytes of texts. If all of them, or all but one, lead from a state to equally free states, that state
/// allows most of what these states allow.
inline constexpr std::uint8_t kSamples[] = {' ', 'e', 'S', '0'};

/// Guesses the kinds to start with, from the kinds that these states allow: the first state, the states after the
/// samples, and those after a blank and a sample (0 if the sample is forbidden). `blank` is the kind of blanks.
Signature guess_kinds(Signature free, const Signature (&after)[sizeof kSamples],
                      const Signature (&after_blank)[sizeof kSamples], Signature blank);

template <class F>
ByteSet next_bytes(F& f, typename F::State state) {
  if constexpr (HasNextBytes<F>)
    return f.next_bytes(state);
  else
    return ByteSet::all();
}
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
/// Takes no place in frames of recognizers without `multibyte_signature`.
struct Nothing {};
template <class F>
auto multibyte_signature(F& f, typename F::State state) {
  if constexpr (HasMultibyteSignature<F>)
    return f.multibyte_signature(state);
  else
    return Nothing();
}
template <class R>
Signature loop_signature(R& r) {
  if constexpr (StackLoopSignature<R>)
    return r.loop_signature();
  else
    return 0;
}

/// What walks do at exits (HasExits): those that do not leave an inner recognizer, and those that keep all exits.
inline constexpr auto kNoExits = [](const TrieNode*, const auto&) {};
inline auto add_to(std::vector<Exit>& exits) {
  return [&exits](const TrieNode* node, std::uint32_t above) {
    exits.push_back({static_cast<std::uint32_t>(node - vocabulary().nodes()), above});
  };
}

}  // namespace detail

namespace detail {

/// The walk of a functional recognizer. It adds tokens to `bits`.
template <FunctionalRecognizer F>
class Walk {
 public:
  using State = typename F::State;
  static_assert(std::is_trivially_copyable_v<State> && sizeof(State) <= 32,
                "a functional state is a small value: keep larger ones in a table and pass an index");

  Walk(F& f, std::uint32_t* bits) : f_(f), bits_(bits), vocab_(vocabulary()) {
    if constexpr (HasWellFormed<F>)
      if (f.well_formed()) multibyte_ = kWellFormedUtf8;
  }

  /// Adds all tokens that are allowed in `state`. Where the walk leaves the inner recognizer (HasInner), it calls
  /// `on_exit(node, state above)` instead of descending.
  template <class OnExit>
  void all(State state, OnExit on_exit) {
    stack_[0] = frame(state);
    Signature kinds = 0;
    if constexpr (HasLoopSignature<F>) {
      Signature after[sizeof kSamples] = {}, after_blank[sizeof kSamples] = {};
      look(state, after);
      if (State blank = state; enter(state, ' ', &blank)) look(blank, after_blank);
      // with most tokens longer than the text that is free, the walk would remove most of them again
      const Signature free = stack_[0].length < kShortLoop ? 0 : stack_[0].free;
      kinds = guess_kinds(free, after, after_blank, 1u << vocab_.classes().of[' ']);
    }
    kinds = start_with(vocab_, kinds, bits_);
    const bool rare = (kinds & kWellFormedUtf8) != 0 && has_rare(*vocab_.nodes());
    Start start(vocab_, kinds, rare || (kinds & ~stack_[0].free) != 0 || stack_[0].length != kUnlimited, multibyte_);
    sparse_ = kinds == 0 && stack_[0].free == 0;
    if (!sparse_) {
      run(vocab_.nodes() + 1, vocab_.nodes() + vocab_.num_nodes(), start, on_exit);
      return;
    }
    const ByteSet next = next_bytes(f_, state);
    for (const TrieNode& node : Children(vocab_.nodes()))
      if (next.has(node.byte())) run(&node, &node + node.subtree_size(), start, on_exit);
  }

  /// Adds the tokens at and below `node`, where the state above it is `state`. Calls `on_exit` as `all` does.
  template <class OnExit>
  void below(const TrieNode* node, State state, OnExit on_exit) {
    stack_[node->depth() - 1] = Frame{.state = state};
    Start start(vocab_, 0, false, multibyte_);
    run(node, node + node->subtree_size(), start, on_exit);
  }

  /// Adds the tokens at and below joined exits, where the state above them is `state`.
  void joined(const JoinedExits& exits, State state) {
    stack_[0].state = state;
    const JoinedExits::Node* const end = exits.nodes.data() + exits.nodes.size();
    for (const JoinedExits::Node* node = exits.nodes.data(); node != end;) {
      if (!try_append(f_, stack_[node->depth - 1u].state, node->byte, &stack_[node->depth].state)) {
        node += node->subtree_size;
        continue;
      }
      for (std::uint32_t i = node->first; i < (node + 1)->first; i++) {
        const TokenId token = exits.tokens[i];
        bits_[token >> 5] |= 1u << (token & 31);
      }
      node++;
    }
  }

  /// Removes the tokens with which a text begins from where `state` and the text before do not allow it.
  void check(State state, std::string_view text) {
    const TrieNode* node = vocab_.nodes();
    for (const char byte : text) {
      const TrieNode* next = nullptr;
      for (const TrieNode& child : Children(node))
        if (child.byte() == static_cast<std::uint8_t>(byte)) next = &child;
      if (next == nullptr) return;
      node = next;
      if (!try_append(f_, State(state), node->byte(), &state)) return drop_subtree(vocab_.order(), *node, bits_);
    }
  }

  /// Returns whether it costs less to repeat the walk than to keep its result.
  bool was_short() const { return sparse_ && entered_ < kShort; }

  /// Adds the tokens that are not in the trie, and special tokens, once the other tokens are known.
  void rest(State state) {
    copy_duplicates(vocab_, bits_);
    for (TokenId token : vocab_.long_tokens()) {
      State now = state;
      bool allowed = true;
      for (char byte : vocab_.token(token)) {
        State next = now;
        allowed = try_append(f_, now, static_cast<std::uint8_t>(byte), &next);
        if (!allowed) break;
        now = next;
      }
      const std::uint32_t bit = 1u << (token & 31);
      allowed ? bits_[token >> 5] |= bit : bits_[token >> 5] &= ~bit;
    }
    for (SpecialToken which : kSpecialTokens)
      if (f_.special_allowed(state, which)) allow_special(vocab_, which, bits_);
  }

 private:
  static constexpr std::uint32_t kShort = 64, kShortLoop = 4;
  struct Frame {
    State state;
    Signature free;
    std::uint32_t length;  ///< for which `free` holds
    [[no_unique_address]] decltype(multibyte_signature(std::declval<F&>(), std::declval<State>())) multibyte;
  };
  Frame frame(State state) {
    return {state, loop_signature(f_, state), loop_length(f_, state), multibyte_signature(f_, state)};
  }

  /// Returns whether all texts of these kinds are allowed below a node.
  bool allows_all(const Frame& above, const TrieNode& node, Signature kinds) const {
    bool all = (kinds & ~above.free) == 0 && node.height() <= above.length;
    if constexpr (HasMultibyteSignature<F>) all = all || (node.byte() >= 0x80 && (kinds & ~above.multibyte) == 0);
    return all && !((kinds & kWellFormedUtf8) != 0 && has_rare(node));
  }

  /// Returns whether there are characters below a node that the kinds do not stand for.
  bool has_rare(const TrieNode& node) const {
    if constexpr (HasRareNodes<F>) {
      const auto number = static_cast<std::uint32_t>(&node - vocab_.nodes());
      const std::span<const std::uint32_t> rare = f_.rare_nodes();
      const auto first = std::ranges::lower_bound(rare, number);
      return first != rare.end() && *first < number + node.subtree_size();
    } else {
      return false;
    }
  }

  /// Returns whether a character that the kinds do not stand for ends at a node.
  bool ends_rare(const TrieNode& node) const {
    if constexpr (HasRareNodes<F>)
      return std::ranges::binary_search(f_.rare_nodes(), static_cast<std::uint32_t>(&node - vocab_.nodes()));
    else
      return false;
  }

  /// Returns whether the state above counts, and what it allows suffices for this subtree. There are many states that
  /// count, and finding out what each of them allows would take longer.
  bool counts(const Frame& above, const TrieNode& node) const {
    return HasLoopLength<F> && above.length != kUnlimited && node.byte() < 0x80 && node.height() <= above.length &&
           (above.free >> vocab_.classes().of[node.byte()] & 1) != 0;
  }

  /// Within a character no text is free. But if all characters are but for a few, what is free after them is known
  /// before.
  void carry(const Frame& above, Frame& within) {
    Signature kinds = above.free;
    std::uint32_t length = above.length;
    if constexpr (HasMultibyteSignature<F>)
      if ((above.multibyte & kWellFormedUtf8) != 0) kinds = above.multibyte, length = kUnlimited;
    if (within.free != 0 || (kinds & kWellFormedUtf8) == 0 || length == 0) return;
    within.free = kinds;
    within.length = length == kUnlimited ? length : length - 1;
  }

  /// Computes what the states after the samples allow.
  void look(State state, Signature (&after)[sizeof kSamples])
    requires HasLoopSignature<F>
  {
    for (std::size_t i = 0; i < sizeof kSamples; i++)
      if (State next = state; enter(state, kSamples[i], &next)) after[i] = f_.loop_signature(next);
  }

  /// Makes a step that does not leave the inner recognizer.
  bool enter(State state, std::uint8_t byte, State* next) {
    if (!try_append(f_, state, byte, next)) return false;
    if constexpr (HasExits<F>)
      return !f_.leaves(*next);
    else
      return true;
  }

  template <class OnExit>
  void run(const TrieNode* node, const TrieNode* end, Start& start, OnExit on_exit) {
    const TokenId* const order = vocab_.order();
    std::uint32_t* const bits = bits_;
    while (node < end) {
      const std::uint32_t size = node->subtree_size();
      const unsigned depth = node->depth();
      const Frame& above = stack_[depth - 1];
      if constexpr (HasLoopSignature<F>) {
        if (allows_all(above, *node, node->signature)) {
          if (!start.took_all(*node, depth)) take_subtree(order, *node, bits_);
          node += size;
          continue;
        }
      }
      if constexpr (HasWellFormed<F>) {
        // tokens that are not well-formed are forbidden, and the others were taken
        if (node->byte() >= 0x80 && multibyte_ == kWellFormedUtf8 && start.took_all(*node, depth, kOtherBytes) &&
            allows_all(above, *node, (node->signature & ~kOtherBytes) | kWellFormedUtf8)) {
          node += size;
          continue;
        }
      }
      State next = above.state;
      bool allowed = try_append(f_, above.state, node->byte(), &next);
      if constexpr (HasExits<F>)
        if (allowed && f_.leaves(next)) {
          on_exit(node, above.state);
          allowed = false;
        }
      if (!allowed) {
        if constexpr (HasLoopSignature<F>)
          if (start.took_some(*node, depth)) drop_subtree(order, *node, bits_);
        node += size;
        continue;
      }
      if constexpr (HasExits<F>) entered_++;
      if (const TokenId token = node->token(); token != TrieNode::kNoToken) bits[token >> 5] |= 1u << (token & 31);
      if (size > 1) {
        if constexpr (!HasLoopSignature<F>)
          stack_[depth].state = next;
        else
          stack_[depth] = counts(above, *node) ? Frame{.state = next, .free = above.free, .length = above.length - 1}
                                               : frame(next);
        if constexpr (HasWellFormed<F>)
          if (node->byte() >= 0x80 && multibyte_ == kWellFormedUtf8 && !ends_rare(*node)) carry(above, stack_[depth]);
        if constexpr (HasLoopSignature<F>) {
          // tokens below an ASCII byte have no other kinds than its subtree
          if (node->byte() < 0x80 && (node->signature & ~stack_[depth].free) == 0 &&
              node->height() <= stack_[depth].length && !((node->signature & kWellFormedUtf8) != 0 && has_rare(*node))) {
            if (!start.took_all(*node, depth)) take_subtree(order, *node, bits_);
            node += size;
            continue;
          }
          start.descend(*node, depth);
        }
      }
      node++;
    }
  }

  F& f_;
  std::uint32_t* const bits_;
  const Vocabulary& vocab_;
  /// Kinds of the bytes from 0x80 on in allowed texts.
  Signature multibyte_ = kWellFormedUtf8 | kOtherBytes;
  /// Whether the walk began with no tokens, and how many nodes it has entered (of an inner recognizer, HasExits).
  bool sparse_ = false;
  std::uint32_t entered_ = 0;
  Frame stack_[kMaxDepth + 1];
};

/// Sets `out` to the mask within an inner state, by a walk, and caches it unless it is cheap. Returns the exits.
template <HasInner F>
std::vector<Exit> walk_inner(F& f, std::uint32_t inner, TokenSet& out) {
  typename F::Inner inside = f.inside();
  std::vector<Exit> exits;
  Walk<typename F::Inner> walk(inside, out.data());
  walk.all(inner, add_to(exits));
  if (!walk.was_short()) f.inner_masks().put(inner, out, exits);
  return exits;
}

/// Calls `redo(child, inner)` for the nodes below `parent` at which the text after `inner` begins to differ from that
/// after `similar`. Known names that share their first letters with tokens differ only after these letters.
template <HasSimilar Inside, class Redo>
void each_difference(Inside& inside, const TrieNode* parent, std::uint32_t inner, std::uint32_t similar,
                     const ByteSet& differ, Redo redo) {
  for (const TrieNode& node : Children(parent)) {
    if (!differ.has(node.byte())) continue;
    const std::uint32_t next = inside.append(inner, node.byte());
    ByteSet below;
    const std::uint32_t like = inside.dead(next) || inside.leaves(next) ? 0 : inside.similar(next, below);
    if (like != 0 && like == inside.append(similar, node.byte()))
      each_difference(inside, &node, next, like, below, redo);
    else
      redo(&node, inner);
  }
}

/// Returns whether a text below a node, including the node's byte, may have more than this number of characters.
inline bool may_exceed(const TrieNode& node, std::uint32_t characters) {
  const bool multibyte = (node.signature & ~(kWellFormedUtf8 | kOtherBytes)) == 0;
  return node.height() > (multibyte ? 2 * characters : characters);
}

/// Returns the inner state in front of a node, from `inner` on; 0 if it leaves before.
template <class Inside>
std::uint32_t state_above(Inside& inside, std::uint32_t inner, const TrieNode& node) {
  for (const char byte : text_above(node)) {
    inner = inside.append(inner, static_cast<std::uint8_t>(byte));
    if (inside.dead(inner) || inside.leaves(inner)) return 0;
  }
  return inner;
}

/// As `visit_inner`, from the mask of a twin for texts of up to `length` characters. Only longer tokens are looked at,
/// and the states at exits are found anew.
template <HasInner F, class Visit>
void visit_by_twin(F& f, std::uint32_t inner, std::uint32_t twin, std::uint32_t length, TokenSet& out, Visit visit) {
  const Vocabulary& vocab = vocabulary();
  typename F::Inner inside = f.inside();
  std::vector<Exit> exits;
  const auto collect = [&](const Exit& exit) { exits.push_back(exit); };
  bool known = false;
  if constexpr (std::invocable<Visit, const JoinedExits&>)
    if (length == kUnlimited) {
      // equal states of the twin are equal states here
      const auto visit_joined = [&](const auto& exit) {
        if constexpr (std::is_same_v<decltype(exit), const Exit&>) {
          exits.push_back(exit);
        } else {
          JoinedExits here = exit;
          here.any.above = state_above(inside, inner, vocab.nodes()[exit.any.node]);
          if (here.any.above != 0) visit(here);
        }
      };
      known = f.inner_masks().find(twin, out, visit_joined);
    }
  if (!known && !f.inner_masks().find(twin, out, collect)) exits = walk_inner(f, twin, out);
  // along the path to a node: the states, and how many characters may follow
  std::uint32_t states[kMaxDepth + 1] = {inner}, rooms[kMaxDepth + 1] = {length};
  const TrieNode* const end = vocab.nodes() + vocab.num_nodes();
  for (const TrieNode* node = vocab.nodes() + 1; node < end && length != kUnlimited;) {
    const unsigned depth = node->depth();
    const std::uint32_t room = rooms[depth - 1];
    const bool is_long = may_exceed(*node, room);
    const std::uint32_t next = is_long ? inside.append(states[depth - 1], node->byte()) : 0;
    if (is_long && !inside.dead(next) && !inside.leaves(next)) {
      states[depth] = next;
      rooms[depth] = room - (room != 0 && (node->byte() & 0xC0) != 0x80);
      node++;
      continue;
    }
    if (is_long && inside.dead(next)) drop_subtree(vocab.order(), *node, out.data());
    node += node->subtree_size();
  }
  for (const Exit& exit : exits) {
    const TrieNode& node = vocab.nodes()[exit.node];
    const std::uint32_t above = state_above(inside, inner, node);
    if (above != 0 && inside.leaves(inside.append(above, node.byte()))) visit(Exit{exit.node, above});
  }
}

/// Sets `out` to the mask within an inner state and calls `visit` for each exit, which may add the tokens below it. From a
/// similar state, walks only below the nodes at which the two differ.
template <HasInner F, class Visit>
void visit_inner(F& f, std::uint32_t inner, TokenSet& out, Visit visit) {
  typename F::Inner inside = f.inside();
  if constexpr (HasTwin<typename F::Inner>) {
    std::uint32_t length = kUnlimited;
    if (const std::uint32_t twin = inside.twin(inner, &length); twin != inner)
      return visit_by_twin(f, inner, twin, length, out, visit);
  }
  if (f.inner_masks().find(inner, out, visit)) return;
  if constexpr (HasSimilar<typename F::Inner>) {
    static_assert(!HasRestart<F>, "`visit` adds tokens to `out` only");
    ByteSet differ;
    if (const std::uint32_t similar = inside.similar(inner, differ); similar != 0) {
      visit_inner(f, similar, out, visit);
      const Vocabulary& vocab = vocabulary();
      Walk<typename F::Inner> walk(inside, out.data());
      each_difference(inside, vocab.nodes(), inner, similar, differ, [&](const TrieNode* node, std::uint32_t above) {
        drop_subtree(vocab.order(), *node, out.data());
        std::vector<Exit> exits;
        walk.below(node, above, add_to(exits));
        for (const Exit& exit : exits) visit(exit);
      });
      return;
    }
  }
  for (const Exit& exit : walk_inner(f, inner, out)) visit(exit);
}

/// Adds the tokens below a node, before which the text is appended to `state`.
template <HasInner F>
void below_text(F& f, typename F::State state, const TrieNode* node, Walk<F>& walk) {
  for (const char byte : text_above(*node))
    if (!try_append(f, typename F::State(state), static_cast<std::uint8_t>(byte), &state)) return;
  walk.below(node, state, kNoExits);
}

/// Adds the tokens at and below a node at which a terminal begins, from the inner mask in front of this terminal.
template <HasRestart F>
void add_restarted(F& f, typename F::State restarted, const TrieNode* node, Walk<F>& walk, TokenSet& out) {
  TokenSet& whole = f.inner_masks().scratch();
  visit_inner(f, f.inner(restarted), whole, [&](const Exit& exit) {
    const TrieNode* below = vocabulary().nodes() + exit.node;
    if (below >= node && below < node + node->subtree_size()) walk.below(below, f.outer(restarted, exit.above), kNoExits);
  });
  const std::uint32_t *inside = f.inner_masks().subtree(node).data(), *allowed = whole.data();
  for (std::uint32_t i = 0; i < out.size_in_words(); i++) out.data()[i] |= allowed[i] & inside[i];
}

}  // namespace detail

/// Sets `out` to the tokens that `f` allows in `state`.
template <FunctionalRecognizer F>
void compute_bias(F& f, typename F::State state, TokenSet& out) {
  detail::Walk<F> walk(f, out.data());
  std::uint32_t inner = 0;
  if constexpr (HasInner<F>) {
    inner = f.inner(state);
    const TrieNode* const nodes = vocabulary().nodes();
    std::vector<Exit> large;
    const auto visit = [&]<class E>(const E& exit) {
      if constexpr (std::is_same_v<E, JoinedExits>) {
        walk.joined(exit, f.outer(state, exit.any.above));
      } else {
        const TrieNode* node = nodes + exit.node;
        if constexpr (HasRestart<F>)
          if (node->depth() == 1 && (node + node->subtree_size())->first() - node->first() > out.size_in_words()) {
            large.push_back(exit);
            return;
          }
        walk.below(node, f.outer(state, exit.above), detail::kNoExits);
      }
    };
    bool by_text = false;
    if constexpr (HasDoubts<F>)
      if ((by_text = f.by_text(state))) {
        detail::visit_inner(f, inner, out, [&](const Exit& exit) { detail::below_text(f, state, nodes + exit.node, walk); });
        for (const std::string& text : f.doubts(state)) walk.check(state, text);
      }
    if (inner != 0 && !by_text) detail::visit_inner(f, inner, out, visit);
    if constexpr (HasRestart<F>)
      for (const Exit& exit : large) {
        const TrieNode* node = nodes + exit.node;
        const typename F::State above = f.outer(state, exit.above), restarted = f.restart(above, node->byte());
        if (restarted != 0)
          detail::add_restarted(f, restarted, node, walk, out);
        else
          walk.below(node, above, detail::kNoExits);
      }
  }
  if (inner == 0) walk.all(state, detail::kNoExits);
  walk.rest(state);
}

/// Sets `out` to the tokens that `r` allows in its top state. Leaves the stack unchanged.
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
    kinds = detail::guess_kinds(free[0], after, {}, 0);
  }
  kinds = detail::start_with(vocab, kinds, bits);
  detail::Start start(vocab, kinds, (kinds & ~free[0]) != 0, kWellFormedUtf8 | kOtherBytes);
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

/// Returns the set of tokens that a recognizer allows.
template <ByteStack R>
TokenSet compute_bias(R& r) {
  TokenSet out;
  compute_bias(r, out);
  return out;
}

}  // namespace aici
