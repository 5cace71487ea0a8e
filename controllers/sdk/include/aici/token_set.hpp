// token_set.hpp - a set of tokens as a bit mask, in the format of the host.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "aici/types.hpp"
#include "aici/vocabulary.hpp"

namespace aici {

/// One bit per token of the vocabulary: bit t & 31 of word t >> 5. That is 16 KiB for 131 072 tokens, so reuse a set
/// instead of creating new ones.
class TokenSet {
 public:
  /// The empty set.
  TokenSet();
  TokenSet(const TokenSet& other);
  TokenSet& operator=(const TokenSet& other);
  TokenSet(TokenSet&&) noexcept = default;
  TokenSet& operator=(TokenSet&&) noexcept = default;

  std::uint32_t size_in_words() const { return words_; }
  std::uint32_t* data() { return bits_.get(); }
  const std::uint32_t* data() const { return bits_.get(); }
  std::span<const std::uint32_t> words() const { return {bits_.get(), words_}; }

  void allow(TokenId token) { bits_[token >> 5] |= 1u << (token & 31); }
  void forbid(TokenId token) { bits_[token >> 5] &= ~(1u << (token & 31)); }
  bool allows(TokenId token) const { return bits_[token >> 5] >> (token & 31) & 1; }
  void allow(std::span<const TokenId> tokens) {
    for (TokenId token : tokens) allow(token);
  }

  void clear() { std::memset(bits_.get(), 0, words_ * sizeof(std::uint32_t)); }
  /// Allows every token id of the vocabulary, including special tokens.
  void allow_all();
  /// Allows every token with text.
  void allow_text();

  TokenSet& operator|=(const TokenSet& other);
  TokenSet& operator&=(const TokenSet& other);
  /// Removes the tokens of `other`.
  TokenSet& operator-=(const TokenSet& other);
  bool operator==(const TokenSet& other) const;

  bool empty() const;
  /// Returns whether the set has a token with text.
  bool has_text() const;
  std::uint32_t count() const;

  /// Calls `visit(token)` for every token, in order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::uint32_t w = 0; w < words_; w++)
      for (std::uint32_t left = bits_[w]; left != 0; left &= left - 1)
        visit(static_cast<TokenId>(w * 32 + static_cast<std::uint32_t>(__builtin_ctz(left))));
  }

 private:
  std::uint32_t words_;
  std::unique_ptr<std::uint32_t[]> bits_;
};

}  // namespace aici
