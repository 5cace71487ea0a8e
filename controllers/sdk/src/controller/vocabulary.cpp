#include "aici/vocabulary.hpp"

#include "aici/host.hpp"
#include "aici/token_set.hpp"

namespace aici {

namespace {

constexpr std::uint32_t kNone = 0xffffffff;

}  // namespace

std::optional<TokenId> Vocabulary::special_token(SpecialToken which) const {
  std::uint32_t id = kNone;
  switch (which) {
    case SpecialToken::eos:
      if (header().num_eos != 0) id = eos()[0];
      break;
    case SpecialToken::bos:
      id = header().bos;
      break;
    case SpecialToken::pad:
      id = header().pad;
      break;
    case SpecialToken::unk:
      id = header().unk;
      break;
  }
  if (id == kNone) return std::nullopt;
  return id;
}

std::string Vocabulary::text(std::span<const TokenId> tokens) const {
  std::string text;
  for (TokenId each : tokens)
    if (!is_special(each)) text.append(token(each));
  return text;
}

/// Not inlined, since small controllers call it from several functions.
[[gnu::noinline]] const Vocabulary& vocabulary() {
  static constinit Vocabulary mapped(nullptr);
  static constinit bool ready = false;
  if (!ready) {
    const auto* header = static_cast<const aici_vocabulary_header*>(aici_vocabulary());
    if (header->magic != AICI_VOCABULARY_MAGIC || header->version != AICI_VOCABULARY_VERSION)
      fail(
          "the host's vocabulary image has another format than this controller's SDK: rebuild the "
          "controller");
    mapped = Vocabulary(header);
    ready = true;
  }
  return mapped;
}

namespace {

/// Returns whether a word is not 0. Checks some words at once, and stops when it has found one.
template <class Word>
bool any(std::uint32_t words, Word word) {
  constexpr std::uint32_t kAtOnce = 64;
  for (std::uint32_t from = 0; from < words; from += kAtOnce) {
    const std::uint32_t to = from + kAtOnce < words ? from + kAtOnce : words;
    std::uint32_t found = 0;
    for (std::uint32_t w = from; w < to; w++) found |= word(w);
    if (found != 0) return true;
  }
  return false;
}

}  // namespace

TokenSet::TokenSet() : words_(vocabulary().mask_words()), bits_(new std::uint32_t[words_]()) {}

TokenSet::TokenSet(const TokenSet& other) : words_(other.words_), bits_(new std::uint32_t[words_]) {
  std::memcpy(bits_.get(), other.bits_.get(), words_ * sizeof(std::uint32_t));
}

TokenSet& TokenSet::operator=(const TokenSet& other) {
  if (this != &other) std::memcpy(bits_.get(), other.bits_.get(), words_ * sizeof(std::uint32_t));
  return *this;
}

void TokenSet::allow_all() {
  std::memset(bits_.get(), 0xff, words_ * sizeof(std::uint32_t));
  const std::uint32_t rest = vocabulary().size() & 31;
  if (rest != 0) bits_[words_ - 1] = (1u << rest) - 1;
}

void TokenSet::allow_text() {
  std::memcpy(bits_.get(), vocabulary().text_mask(), words_ * sizeof(std::uint32_t));
}

TokenSet& TokenSet::operator|=(const TokenSet& other) {
  for (std::uint32_t w = 0; w < words_; w++) bits_[w] |= other.bits_[w];
  return *this;
}

TokenSet& TokenSet::operator&=(const TokenSet& other) {
  for (std::uint32_t w = 0; w < words_; w++) bits_[w] &= other.bits_[w];
  return *this;
}

TokenSet& TokenSet::operator-=(const TokenSet& other) {
  for (std::uint32_t w = 0; w < words_; w++) bits_[w] &= ~other.bits_[w];
  return *this;
}

bool TokenSet::operator==(const TokenSet& other) const {
  return std::memcmp(bits_.get(), other.bits_.get(), words_ * sizeof(std::uint32_t)) == 0;
}

bool TokenSet::empty() const {
  return !any(words_, [this](std::uint32_t w) { return bits_[w]; });
}

bool TokenSet::has_text() const {
  const std::uint32_t* text = vocabulary().text_mask();
  return any(words_, [this, text](std::uint32_t w) { return bits_[w] & text[w]; });
}

std::uint32_t TokenSet::count() const {
  std::uint32_t count = 0;
  for (std::uint32_t w = 0; w < words_; w++)
    count += static_cast<std::uint32_t>(__builtin_popcount(bits_[w]));
  return count;
}

}  // namespace aici
