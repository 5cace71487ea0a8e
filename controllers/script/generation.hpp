// generation.hpp - one generated text: tokens under a pattern, until it is whole or a limit is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "aici/controller.hpp"
#include "patterns.hpp"
#include "script.h"
#include "sequence.hpp"

namespace script {

class Generation {
 public:
  /// `patterns` and `sequence` must live as long. Fails if the pattern cannot be made again.
  Generation(const script_generation& wanted, Patterns& patterns, Sequence& sequence);

  /// Takes note of tokens that have come, which `step` tells more about.
  void append(std::span<const aici::TokenId> tokens, const aici::Step& step);
  bool over() const { return over_; }
  /// What may come next; nothing: it is over.
  std::optional<aici::MidResult> next();

  script_generated result() const;

 private:
  std::uint32_t wanted_top() const { return logprobs_ && top_ == 0 ? 1 : top_; }
  void append_one(aici::TokenId token, const aici::Step& step);
  /// The model goes on with something that is not of the pattern; `token` may begin with the end of what is.
  void leave(aici::TokenId token);
  /// Appends text of ours.
  void force(std::string_view text);
  void finish(script_finish how);
  /// Is there a stop string that ends in the last `added` bytes? Where the text ends then, else npos.
  std::size_t find_stop(std::size_t added) const;
  /// The text ends after `size` bytes: takes back what is beyond.
  void cut(std::size_t size);

  Sequence& sequence_;
  aici::AnyConstraint* constraint_ = nullptr;
  std::uint32_t max_tokens_, max_bytes_;
  float temperature_;
  bool logprobs_, include_stop_;
  std::uint32_t top_;
  std::vector<std::string> stops_;

  /// The text may end here: any token may come, and one that is not of this mask is the end. Lies in the constraint.
  const std::uint32_t* open_ = nullptr;
  bool may_leave_;

  std::string text_;
  /// Where in the text each token ends.
  std::vector<std::size_t> ends_;
  std::vector<script_scored> scored_;
  std::vector<script_top> tops_;
  script_finish finish_ = SCRIPT_FINISH_COMPLETE;
  bool over_ = false;
  /// Tokens of the sequence behind the one that is being appended.
  std::size_t beyond_ = 0;
};

}  // namespace script
