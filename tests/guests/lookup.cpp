// Expects the tokens that followed the last two tokens when they first occurred (prompt lookup).
//
// The argument is "", or "wrong": expects other tokens, or "many": expects more than the engine takes.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "aici/sdk.hpp"

class Lookup : public aici::Controller {
 public:
  explicit Lookup(std::string_view mode) : mode_(mode) {}

  void init_prompt(std::span<const aici::TokenId> prompt) { tokens_.assign(prompt.begin(), prompt.end()); }

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    const auto came = aici::step().tokens();
    tokens_.insert(tokens_.end(), came.begin(), came.end());
    aici::MidResult result = aici::MidResult::sample_any();
    if (std::vector<aici::TokenId> drafts = found(); !drafts.empty()) result.with_drafts(std::move(drafts));
    return result;
  }

 private:
  std::vector<aici::TokenId> found() const {
    const std::size_t size = tokens_.size(), most = aici::capability(aici::Capability::drafts);
    if (mode_ == "wrong") return std::vector<aici::TokenId>(std::min<std::size_t>(most, 3), 1);
    if (mode_ == "many") return std::vector<aici::TokenId>(most + 1, 1);
    for (std::size_t at = 2; at + 1 < size; at++) {
      if (tokens_[at - 2] != tokens_[size - 2] || tokens_[at - 1] != tokens_[size - 1]) continue;
      // the token at `at` is the one that is sampled
      return {tokens_.begin() + static_cast<std::ptrdiff_t>(at) + 1,
              tokens_.begin() + static_cast<std::ptrdiff_t>(std::min(size, at + 1 + most))};
    }
    return {};
  }

  std::string mode_;
  std::vector<aici::TokenId> tokens_;
};

AICI_REGISTER(Lookup, init_prompt);
