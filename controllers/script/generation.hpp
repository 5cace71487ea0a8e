// generation.hpp - a generated text: tokens under a pattern, until the text is complete or a limit is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aici/controller.hpp"
#include "patterns.hpp"
#include "prediction.hpp"
#include "row.hpp"
#include "script.h"
#include "sequence.hpp"

namespace script {

class Generation {
 public:
  /// `patterns` and `sequence` must outlive this object. Fails if the pattern cannot be compiled again.
  Generation(const script_generation& wanted, Patterns& patterns, Sequence& sequence);

  /// Follows new tokens; `step` has their probabilities.
  void append(std::span<const aici::TokenId> tokens, const aici::Step& step);
  bool over() const { return over_; }
  /// Returns the next row; nothing if the text has ended.
  std::optional<aici::MidResult> next();

  script_generated result() const;

 private:
  void append_one(aici::TokenId token, const aici::Step& step);
  /// Ends the text where the model leaves the pattern; `token` may begin with the end of the text.
  void leave(aici::TokenId token);
  /// Appends forced text.
  void force(std::string_view text);
  /// Returns a row with all options.
  aici::MidResult with_options(aici::MidResult row);
  void finish(script_finish how);
  /// Returns where the text ends if a stop string ends in the last `added` bytes, else npos.
  std::size_t find_stop(std::size_t added) const;
  /// Ends the text after `size` bytes and removes the rest.
  void cut(std::size_t size);

  Sequence& sequence_;
  aici::AnyConstraint* constraint_ = nullptr;
  std::uint32_t max_tokens_, max_bytes_;
  /// Numbers of most likely tokens: what the engine reports, and what the script gets.
  Options options_;
  std::uint32_t top_;
  bool logprobs_, include_stop_;
  std::vector<std::string> stops_;
  Prediction prediction_;

  /// The mask, stored in the constraint, if the text may end here: any token is allowed, and a token outside the mask
  /// ends the text.
  const std::uint32_t* open_ = nullptr;
  bool may_leave_;

  std::string text_;
  /// The text that the constraint has read, if it has captures.
  std::string followed_;
  /// The end of each token in the text.
  std::vector<std::size_t> ends_;
  std::vector<script_scored> scored_;
  std::vector<script_top> tops_;
  script_finish finish_ = SCRIPT_FINISH_COMPLETE;
  bool over_ = false;
  /// Number of tokens after the one that is being appended.
  std::size_t beyond_ = 0;
};

}  // namespace script
