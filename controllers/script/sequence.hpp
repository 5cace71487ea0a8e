// sequence.hpp - the tokens of this sequence as the script sees them; forced tokens count at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/controller.hpp"

namespace script {

/// Forced and removed tokens go to the engine when the script next waits for something, all of them as one splice.
class Sequence {
 public:
  void begin(std::span<const aici::TokenId> prompt);
  /// Follows the current step. Returns the generated tokens; none if the tokens were forced here.
  std::span<const aici::TokenId> note(const aici::Step& step);

  std::span<const aici::TokenId> tokens() const { return tokens_; }
  std::size_t size() const { return tokens_.size(); }
  std::size_t prompt_size() const { return prompt_size_; }

  void force(std::span<const aici::TokenId> tokens);
  /// Removes all tokens from this position on.
  void cut(std::size_t size);
  /// Replaces all tokens from this position on; those that stay the same are not removed. Returns false, and does
  /// nothing, if the engine has tokens that it cannot remove.
  bool replace(std::size_t from, std::span<const aici::TokenId> tokens);
  /// Removes the end token that has just been sampled. If nothing follows, the engine may keep it.
  void cut_end();

  std::uint32_t mark();
  static constexpr std::size_t kGone = static_cast<std::size_t>(-1);
  /// Returns the position of a label, or kGone if the sequence was backtracked to before it.
  std::size_t place(std::uint32_t mark) const { return mark < marks_.size() ? marks_[mark] : kGone; }

  /// Returns whether there are changes that the engine does not have yet.
  bool has_news() const { return engine_size_ != settled_ || settled_ < tokens_.size(); }
  /// Returns whether the only change is the removal of an end token.
  bool is_over() const { return !has_news() || (held_end_ && settled_ == tokens_.size()); }
  /// Returns a splice with as many changes as one splice can have.
  aici::MidResult news();

 private:
  /// Maximum number of tokens in a splice (aicirt/settings.py).
  static constexpr std::size_t kMaxAtOnce = 4096;

  std::vector<aici::TokenId> tokens_;
  std::vector<std::size_t> marks_;
  std::size_t prompt_size_ = 0;
  /// Number of first tokens that the engine already has.
  std::size_t settled_ = 0;
  /// Number of the engine's tokens; it must remove those beyond `settled_`.
  std::size_t engine_size_ = 0;
  /// A splice was sent, and the next step reports it.
  bool told_ = false;
  /// The engine's last token is an end token that was removed here.
  bool held_end_ = false;
  aici::TokenId end_ = 0;
};

}  // namespace script
