// sequence.hpp - the tokens of this sequence as the script sees them: what it forces counts at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/controller.hpp"

namespace script {

/// The engine hears of forced and removed tokens when the script next waits for something: by then they may be many,
/// and are one splice.
class Sequence {
 public:
  void begin(std::span<const aici::TokenId> prompt);
  /// Takes note of the present step; the tokens that were generated, which is none if what came was forced here.
  std::span<const aici::TokenId> note(const aici::Step& step);

  std::span<const aici::TokenId> tokens() const { return tokens_; }
  std::size_t size() const { return tokens_.size(); }
  std::size_t prompt_size() const { return prompt_size_; }

  void force(std::span<const aici::TokenId> tokens);
  /// Takes back all tokens from this place on.
  void cut(std::size_t size);
  /// Takes back the end token that has just been sampled. If nothing else follows, it may as well stay.
  void cut_end();

  std::uint32_t mark();
  static constexpr std::size_t kGone = static_cast<std::size_t>(-1);
  /// Where a mark is, or kGone if it was taken back.
  std::size_t place(std::uint32_t mark) const { return mark < marks_.size() ? marks_[mark] : kGone; }

  /// Is there something that the engine has not heard of?
  bool has_news() const { return engine_size_ != settled_ || settled_ < tokens_.size(); }
  /// Nothing but an end token to be taken back?
  bool is_over() const { return !has_news() || (held_end_ && settled_ == tokens_.size()); }
  /// Tells the engine, as much as goes at once.
  aici::MidResult news();

 private:
  /// A splice may have as many (aicirt/settings.py).
  static constexpr std::size_t kMostAtOnce = 4096;

  std::vector<aici::TokenId> tokens_;
  std::vector<std::size_t> marks_;
  std::size_t prompt_size_ = 0;
  /// The first tokens, which the engine has.
  std::size_t settled_ = 0;
  /// How many the engine has: those beyond `settled_` are to be taken back.
  std::size_t engine_size_ = 0;
  /// The engine has been told, and its answer is what comes next.
  bool told_ = false;
  /// The engine's last token is an end token that was taken back here.
  bool held_end_ = false;
};

}  // namespace script
