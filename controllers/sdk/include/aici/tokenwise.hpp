// tokenwise.hpp - the original interface of AICI: biases after the prompt, and after each token.
//
//   class Old : public aici::TokenwiseController<Old> {
//    public:
//     std::vector<float> process_prompt(std::span<const aici::TokenId> prompt);
//     std::vector<float> append_token(aici::TokenId token);
//   };
//   AICI_REGISTER(Old, init_prompt);
//
// The functions return the biases for the next token, one for each token of the vocabulary. Instead of
// std::vector<float>, they may return an aici::TokenSet or an aici::MidResult.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "aici/controller.hpp"

namespace aici {

namespace detail {
inline MidResult as_result(MidResult&& result) { return std::move(result); }
inline MidResult as_result(TokenSet&& allowed) { return MidResult::sample(std::move(allowed)); }
/// Converts biases that only allow (0) or forbid into a mask, which every engine supports.
MidResult as_result(std::vector<float>&& biases);
}  // namespace detail

template <class Derived>
class TokenwiseController : public Controller {
 public:
  void init_prompt(std::span<const TokenId> prompt) {
    next_ = detail::as_result(self().process_prompt(prompt));
    fresh_ = true;
  }

  MidResult mid_process(std::span<const SeqId>) {
    if (step().backtrack() != 0) fail("tokens were backtracked, which this controller does not support");
    for (TokenId token : step().tokens()) {
      if (vocabulary().is_eos(token)) return MidResult::stop();
      next_ = detail::as_result(self().append_token(token));
      fresh_ = true;
    }
    if (!fresh_) return MidResult::sample_same();
    fresh_ = false;
    return std::move(next_);
  }

 private:
  Derived& self() { return static_cast<Derived&>(*this); }

  MidResult next_ = MidResult::sample_any();
  bool fresh_ = true;
};

}  // namespace aici
