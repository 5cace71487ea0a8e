#include "aici/constraint.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "aici/bias.hpp"

namespace aici::detail {

void fail_forbidden(TokenId token) {
  std::string message = "the token \"";
  message.append(vocabulary().token(token));
  fail(message + "\" was appended, but the constraint does not allow it here");
}

void fail_stuck() {
  fail("the constraint allows no token here: it cannot end, and no token of the vocabulary continues it");
}

namespace {

/// Limits of the kept answers, and of the bytes of the recognizer's states.
constexpr std::size_t kMaxKept = 4096, kMaxStates = 1 << 20;

}  // namespace

bool Warmth::has_room(const AnswerCache& cache, std::size_t states, unsigned times) const {
  return cache.kept_bytes() < times * bytes_ && cache.num_kept() < times * kMaxKept && states < times * kMaxStates;
}

bool tokenizer_is_exact() { return capability(Capability::tokenizer) != 0; }

MidResult forced(std::span<const TokenId> tokens) {
  if (tokens.size() == 1 || capability(Capability::ff_tokens) == 0) return MidResult::force(tokens[0]);
  return MidResult::splice(0, {tokens.begin(), tokens.end()});
}

namespace {

/// Maximum number of captures, since a request has a limited number of variables.
constexpr std::size_t kMaxCaptures = 256;

}  // namespace

void write_captures(std::span<const Capture> captures) {
  if (captures.size() > kMaxCaptures) {
    log("warning: only the first " + std::to_string(kMaxCaptures) + " captures of " + std::to_string(captures.size()) +
        " are written to variables\n");
    captures = captures.first(kMaxCaptures);
  }
  std::map<std::string_view, std::size_t> counts, done;
  for (const Capture& capture : captures) counts[capture.name]++;
  for (const Capture& capture : captures) {
    set_variable(capture.name, capture.text);
    if (counts[capture.name] > 1)
      set_variable(capture.name + "[" + std::to_string(done[capture.name]++) + "]", capture.text);
  }
}

void append_token_text(TokenId token, std::string& text) {
  const Vocabulary& vocab = vocabulary();
  if (!vocab.is_special(token))
    text += vocab.token(token);
  else if (!vocab.is_eos(token))
    text += token_bytes(token);
}

// For the walk over the trie (bias.hpp).

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

// For the explorer of states (warming.hpp).

namespace {

constexpr ByteRange kFirst[] = {{0, 0x7F, 0}, {0xC2, 0xDF, 1}, {0xE0, 0xEF, 2}, {0xF0, 0xF4, 3}};
constexpr ByteRange kLater[] = {{0x80, 0xBF, 0}, {0x80, 0xBF, 1}, {0x80, 0xBF, 2}};

}  // namespace

std::span<const ByteRange> Frontier::bytes(std::uint8_t missing) {
  if (missing == 0) return kFirst;
  return {&kLater[missing - 1], 1};
}

bool Frontier::add(std::uint32_t number, std::uint8_t missing, unsigned cost) {
  if (seen_.size() == kMax) return false;
  Hasher hash;
  hash.add(number);
  const auto same = [&](std::uint32_t place) { return seen_[place].number == number; };
  if (index_.find(hash.bits(), same) != HashIndex::kNone) return false;
  const auto place = static_cast<std::uint32_t>(seen_.size());
  index_.insert(hash.bits(), place);
  std::uint32_t& first = first_[std::min(cost, kMaxCost)];
  seen_.push_back({number, first, missing});
  first = place + 1;
  return true;
}

std::uint32_t Frontier::next() {
  for (cost_ = 0; cost_ < kMaxCost && first_[cost_] == 0; cost_++) {
  }
  const std::uint32_t place = first_[cost_] - 1;
  if (place != kNone) first_[cost_] = seen_[place].after;
  return place;
}

}  // namespace aici::detail
