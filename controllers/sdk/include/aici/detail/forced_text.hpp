// forced_text.hpp - the tokens of text that a constraint forces.
//
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
// behind it of every kind of text that may follow, going by its first byte, and the common beginning is taken
// of these too.
//
// If nothing may follow F, all of its tokens are settled.
//
// An engine that takes no ff_tokens gets settled tokens too, but one at a time, each as the only token that
// may be sampled. If the host has no exact tokenizer for the model (Capability::tokenizer), nothing is forced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "aici/detail/byte_set.hpp"
#include "aici/types.hpp"

namespace aici {

struct ForcedText {
  /// More forced text than this is handled in several parts.
  static constexpr std::size_t kMax = 512;

  std::string bytes;
  ByteSet next;  ///< bytes that may come after it
};

/// The settled tokens of forced text, in order. Asks the host's tokenizer, about twenty times.
std::vector<TokenId> settled_tokens(ForcedText text);

}  // namespace aici
