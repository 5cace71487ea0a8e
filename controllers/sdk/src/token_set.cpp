#include "aici/token_set.hpp"

namespace aici {

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
  std::uint32_t any = 0;
  for (std::uint32_t w = 0; w < words_; w++) any |= bits_[w];
  return any == 0;
}

bool TokenSet::has_text() const {
  const std::uint32_t* text = vocabulary().text_mask();
  std::uint32_t any = 0;
  for (std::uint32_t w = 0; w < words_; w++) any |= bits_[w] & text[w];
  return any != 0;
}

std::uint32_t TokenSet::count() const {
  std::uint32_t count = 0;
  for (std::uint32_t w = 0; w < words_; w++)
    count += static_cast<std::uint32_t>(__builtin_popcount(bits_[w]));
  return count;
}

}  // namespace aici
