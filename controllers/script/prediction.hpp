// prediction.hpp - a text that is expected, and how far the generated text follows it.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "aici/controller.hpp"

namespace script {

/// Where the generated text differs, it goes on behind the next place with the last two tokens, as prompt lookup does.
/// The longer it is followed, the more of it is expected: tokens that are wrong cost a pass some time.
class Prediction {
 public:
  explicit Prediction(std::vector<aici::TokenId> text) : text_(std::move(text)) {}

  void append(aici::TokenId token);
  /// Returns at most so many tokens that are expected next; none if the text is not followed at present.
  std::span<const aici::TokenId> next(std::size_t most) const;

 private:
  std::vector<aici::TokenId> text_;
  /// The expected token, or where the text was last followed.
  std::size_t at_ = 0;
  bool follows_ = true;
  /// Number of tokens in a row that were expected.
  std::size_t followed_ = 0;
  aici::TokenId last_ = static_cast<aici::TokenId>(-1);
};

}  // namespace script
