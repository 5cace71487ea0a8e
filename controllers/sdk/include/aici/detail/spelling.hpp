// spelling.hpp - the tokens of texts: of text that a constraint forces, and of known texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aici/detail/answer_cache.hpp"
#include "aici/detail/byte_set.hpp"
#include "aici/token_set.hpp"
#include "aici/types.hpp"

namespace aici {

// If a constraint forces the bytes F, they can be appended at once instead of sampled token by token. The question is
// which tokens to append. A model knows text in the way in which its tokenizer splits it ("canonical"), and this way
// may depend on the text that follows: F = `{"na` and a later `me":` may contain the token `name`. Therefore:
//
//   A token of F is settled if it is in the canonical tokens of F + X for every X that may follow.
//   Settled tokens are spliced. The rest of F is sampled under masks that force its bytes.
//
// To find the settled tokens: in the tokens of F + X at most one token U lies over the edge between F
// and X; it consists of F's last bytes, from offset j on, and at least one byte of X. Where the tokens of a
// text meet, byte pair encoding, Unigram and longest match split both sides as if they stood alone: the
// tokens before U are those of F[0 .. j]. So only those j matter where F[j ..] is the beginning of a longer
// token that goes on with a byte which may follow; the vocabulary's trie tells. The settled tokens are the
// common beginning of tokenize(F) and of tokenize(F[0 .. j]) for each such j. (If j is inside a
// character, F[0 .. j] is no text; then the token before U ends at j too, and its possible starts take j's
// place.)
//
// Most tokenizers first cut text into words, by a pattern that may look ahead (`\s+(?!\S)`), so that the
// split of F's end can change without a token over the edge. Therefore F is also tokenized with a sample
// after it of every kind of text that may follow, going by its first byte, and the common beginning is taken
// of these too.
//
// If nothing may follow F, all of its tokens are settled.
//
// An engine that takes no ff_tokens gets settled tokens too, but one at a time, each as the only token that
// may be sampled. If the host has no exact tokenizer for the model (Capability::tokenizer), nothing is forced.

struct ForcedText {
  /// More forced text than this is handled in several parts.
  static constexpr std::size_t kMax = 512;

  std::string bytes;
  ByteSet next;  ///< bytes that may come after it
};

/// The settled tokens of forced text, in order. Asks the host's tokenizer, about twenty times.
std::vector<TokenId> settled_tokens(ForcedText text);

// A text can be written as tokens in many ways. A model has learned one of them, that of its tokenizer ("canonical"),
// and performs badly with others. For example, a model that may answer " London" or " Paris", but prefers another
// answer, takes the token " " first, which fits any answer. After " ", it has never seen "London" as a token, so its
// choice means little. Therefore, if the texts of a constraint are known, the tokenizer is called once for each of
// them, and only these tokens are allowed.
//
// Each text is tokenized by itself. The text before it does not matter, since its tokens are already fixed, and no
// token extends beyond its end.

/// The texts that have the tokens so far as a prefix.
class Spelling {
 public:
  /// Longer texts, in bytes, are not tokenized at once.
  static constexpr std::size_t kMax = 4096;

  /// Knows no text.
  Spelling() = default;
  /// Asks the host's tokenizer for each text, which takes some 20 us: ten thousands of them fill a
  /// constructor's second. Knows none if one of them is too long. Fails if the vocabulary cannot spell one.
  explicit Spelling(std::span<const std::string> texts);

  /// Returns whether the tokens so far are a prefix of canonical tokens.
  bool known() const { return num_left_ != 0; }
  void append(TokenId token);
  /// Returns to the state without tokens.
  void restart();
  /// What may come, if it is known: the tokens that all texts go on with, or a mask of their next ones. Valid
  /// until the next call; a mask lies in `scratch`.
  Answer next(TokenSet& scratch) const;

 private:
  /// Offsets in `tokens_`.
  struct Text {
    std::uint32_t begin, end;
  };
  std::span<const TokenId> rest(std::size_t text) const {
    return {tokens_.data() + texts_[text].begin + length_, tokens_.data() + texts_[text].end};
  }

  std::vector<TokenId> tokens_;
  /// The first `num_left_` are those that the tokens so far are a beginning of.
  std::vector<Text> texts_;
  std::size_t num_left_ = 0;
  /// Tokens so far.
  std::uint32_t length_ = 0;
};

namespace detail {
/// Replaces Spelling for recognizers that cannot list their texts.
struct NoSpelling {
  static constexpr bool known() { return false; }
  static void append(TokenId) {}
  static void restart() {}
  static Answer next(TokenSet&) { return {}; }
};
}  // namespace detail

}  // namespace aici
