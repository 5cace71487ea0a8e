// The original interface. The argument is the form of the biases: floats, mask or result.
#include "aici/sdk.hpp"

namespace {

// After token t, of n, only t + 1 is allowed; its bias is `kBias` if the form is "biased".
class Next : public aici::TokenwiseController<Next> {
 public:
  explicit Next(std::string_view argument) : biased_(argument == "biased") {}

  std::vector<float> process_prompt(std::span<const aici::TokenId> prompt) { return after(prompt.back()); }
  std::vector<float> append_token(aici::TokenId token) { return after(token); }

 private:
  std::vector<float> after(aici::TokenId token) const {
    std::vector<float> biases(aici::vocabulary().size(), aici::kForbidden);
    biases[token + 1] = biased_ ? 2.5f : 0.0f;
    return biases;
  }
  bool biased_;
};

}  // namespace

AICI_REGISTER(Next, init_prompt);
