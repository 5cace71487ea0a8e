// line.hpp - the prefix as a recognizer: these bytes, then any text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aici/sdk.hpp"

/// A state is the number of written bytes of the prefix.
class Line {
 public:
  using State = std::uint32_t;

  explicit Line(std::string text) : text_(std::move(text)) {}

  State initial() const { return 0; }
  State append(State state, std::uint8_t) const { return state < size() ? state + 1 : state; }
  bool byte_allowed(State state, std::uint8_t byte) const {
    return state >= size() || static_cast<std::uint8_t>(text_[state]) == byte;
  }
  /// The text may not end, since an end-of-sequence token would end the sequence before the prefix is complete.
  bool special_allowed(State, aici::SpecialToken) const { return false; }
  aici::Signature loop_signature(State state) const { return state < size() ? 0 : ~aici::Signature{0}; }

  std::uint32_t size() const { return static_cast<std::uint32_t>(text_.size()); }

  /// Computes from which states tokens can spell the rest. Returns false if not from the initial state.
  bool look_ahead() {
    open_.assign(size() + 1, true);
    aici::TokenSet tokens;
    for (std::uint32_t state = size(); state-- > 0;) {
      mask(state, tokens);
      open_[state] = !tokens.empty();
    }
    return open_[0];
  }

  /// Sets `out` to the tokens that spell the rest, or a part of it after which tokens can spell the remainder.
  void mask(State state, aici::TokenSet& out) {
    aici::compute_bias(*this, state, out);
    for (aici::TokenId token : dead_ends(state, out)) out.forbid(token);
  }

 private:
  std::vector<aici::TokenId> dead_ends(State state, const aici::TokenSet& tokens) const {
    std::vector<aici::TokenId> found;
    bool all_open = true;
    for (std::uint32_t i = state + 1; i < size(); i++) all_open = all_open && open_[i];
    if (all_open) return found;
    tokens.for_each([&](aici::TokenId token) {
      const std::size_t end = state + aici::vocabulary().token(token).size();
      if (end < size() && !open_[end]) found.push_back(token);
    });
    return found;
  }

  std::string text_;
  std::vector<bool> open_;  ///< by state: tokens can spell the rest
};
