#include "aici/bias.hpp"

namespace aici::detail {

namespace {

/// Each excluded kind costs one pass over a mask. With more excluded kinds than this, a slice and the walk are faster.
constexpr int kMaxExcluded = 12;
/// Number of words processed at a time; they fit into the first-level cache.
constexpr std::uint32_t kBlock = 256;

/// Sets `out` to the largest slice within these kinds, or to nothing if there is none. Returns the kinds of the slice.
Signature start_with_slice(const Vocabulary& vocab, Signature kinds, std::uint32_t* out) {
  const auto slices = vocab.slices();
  std::size_t best = slices.size();
  for (std::size_t i = 0; i < slices.size(); i++)
    if ((slices[i] & ~kinds) == 0 &&
        (best == slices.size() || __builtin_popcount(slices[i]) > __builtin_popcount(slices[best])))
      best = i;
  const std::size_t bytes = vocab.mask_words() * sizeof(std::uint32_t);
  if (best == slices.size()) return std::memset(out, 0, bytes), 0;
  return std::memcpy(out, vocab.slice_mask(best), bytes), slices[best];
}

}  // namespace

Signature start_with(const Vocabulary& vocab, Signature kinds, std::uint32_t* out) {
  const Signature all = ((1u << vocab.classes().count) - 1) | kWellFormedUtf8 | kOtherBytes;
  const Signature excluded = all & ~kinds;
  if (__builtin_popcount(excluded) > kMaxExcluded) return start_with_slice(vocab, kinds, out);
  const std::uint32_t words = vocab.mask_words();
  const std::uint32_t* text = vocab.text_mask();
  for (std::uint32_t from = 0; from < words; from += kBlock) {
    const std::uint32_t to = from + kBlock < words ? from + kBlock : words;
    std::memcpy(out + from, text + from, (to - from) * sizeof(std::uint32_t));
    for (Signature left = excluded; left != 0; left &= left - 1) {
      const std::uint32_t* mask = vocab.class_mask(static_cast<unsigned>(__builtin_ctz(left)));
      for (std::uint32_t w = from; w < to; w++) out[w] &= ~mask[w];
    }
  }
  return kinds;
}

Signature guess_kinds(Signature free, const Signature (&after)[sizeof kSamples],
                      const Signature (&after_blank)[sizeof kSamples], Signature blank) {
  // Where words may begin, numbers may begin too and lead elsewhere, so agreement of both letters is enough.
  const Signature guess = after[0] == after[1] ? after[0] : after[2];
  std::size_t votes = 0;
  for (Signature kinds : after) votes += kinds == guess;
  if (votes + 1 < sizeof kSamples && (after[1] != guess || after[2] != guess)) return free;
  // Many tokens are a space and a word; few continue after that.
  return free | guess | (after_blank[1] == guess && after_blank[2] == guess ? blank : 0);
}

void copy_duplicates(const Vocabulary& vocab, std::uint32_t* out) {
  const auto pairs = vocab.duplicates();
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    const TokenId token = pairs[i], holder = pairs[i + 1];
    const std::uint32_t bit = 1u << (token & 31);
    out[holder >> 5] >> (holder & 31) & 1 ? out[token >> 5] |= bit : out[token >> 5] &= ~bit;
  }
}

void allow_special(const Vocabulary& vocab, SpecialToken which, std::uint32_t* out) {
  if (which == SpecialToken::eos) {
    for (TokenId token : vocab.eos()) out[token >> 5] |= 1u << (token & 31);
  } else if (const auto token = vocab.special_token(which)) {
    out[*token >> 5] |= 1u << (*token & 31);
  }
}

}  // namespace aici::detail
