// spelling.hpp - restricts known texts to their canonical tokens.
//
// A text can be written as tokens in many ways. A model has learned one of them, that of its tokenizer ("canonical"),
// and performs badly with others. For example, a model that may answer " London" or " Paris", but prefers another
// answer, takes the token " " first, which fits any answer. After " ", it has never seen "London" as a token, so its
// choice means little. Therefore, if the texts of a constraint are known, the tokenizer is called once for each of
// them, and only these tokens are allowed.
//
// Each text is tokenized by itself. The text before it does not matter, since its tokens are already fixed, and no
// token extends beyond its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aici/detail/answer_cache.hpp"
#include "aici/token_set.hpp"
#include "aici/types.hpp"

namespace aici {

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
