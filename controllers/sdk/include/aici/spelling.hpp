// spelling.hpp - some texts in the tokens as which a model knows them.
//
// A text can be put together from tokens in many ways. A model has learned one of them, that of its tokenizer
// ("canonical"), and writes badly when it is led to another: one that may answer " London" or " Paris" and
// would rather say something else takes " " first, which goes with all it has in mind; behind that it has
// never seen "London" as a token, and what it then chooses means little. So where the texts of a constraint
// are known, the tokenizer is asked for each of them once, and only these tokens may come.
//
// Each text is tokenized by itself. What stands before it cannot change that, for its tokens are there
// already; and no token reaches over its end, whatever follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aici/answer_cache.hpp"
#include "aici/token_set.hpp"
#include "aici/types.hpp"

namespace aici {

/// The texts that the tokens so far are a beginning of.
class Spelling {
 public:
  /// Longer texts, in bytes, are not tokenized at once.
  static constexpr std::size_t kMost = 4096;

  /// Knows no text.
  Spelling() = default;
  /// Asks the host's tokenizer for each text, which takes some 20 us: ten thousands of them fill a
  /// constructor's second. Knows none if one of them is too long. Fails if the vocabulary cannot spell one.
  explicit Spelling(std::span<const std::string> texts);

  /// Can it say what comes next? Not if the tokens so far are no beginning of canonical tokens.
  bool known() const { return num_left_ != 0; }
  void append(TokenId token);
  /// Back to where no token has come.
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
/// In place of a Spelling, for recognizers that cannot list their texts.
struct NoSpelling {
  static constexpr bool known() { return false; }
  static void append(TokenId) {}
  static void restart() {}
  static Answer next(TokenSet&) { return {}; }
};
}  // namespace detail

}  // namespace aici
