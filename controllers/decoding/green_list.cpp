// green_list: a watermark, after each token, a key makes a share of all tokens likelier.
//
// The same as green_list.py, which has the paper and the detector: both choose the same tokens. The argument is the
// key, the share, the bias and the number of tokens: "42 0.5 2 200".
#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "aici/sdk.hpp"

namespace {

std::uint32_t mix(std::uint32_t x) {
  x = (x ^ x >> 16) * 0x7FEB352Du;
  x = (x ^ x >> 15) * 0x846CA68Bu;
  return x ^ x >> 16;
}

class GreenList : public aici::Controller {
 public:
  explicit GreenList(std::string_view argument) : ring_(aici::vocabulary().size()), biases_(ring_.size()) {
    std::istringstream words{std::string(argument)};
    double share = 0;
    if (!(words >> key_ >> share >> bias_ >> left_) || share <= 0 || share >= 1)
      aici::fail("green_list needs a key, a share between 0 and 1, a bias and a number of tokens: 42 0.5 2 200");
    green_ = static_cast<std::size_t>(static_cast<double>(ring_.size()) * share);
    text_.allow_text();
    for (std::uint32_t token = 0; token < ring_.size(); token++) ring_[token] = token;
    std::ranges::stable_sort(ring_, {}, [this](aici::TokenId token) { return mix(token ^ mix(key_)); });
  }

  void init_prompt(std::span<const aici::TokenId> prompt) { last_ = prompt.back(); }

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    if (!aici::step().tokens().empty()) {
      last_ = aici::step().tokens().back();
      left_--;
    }
    if (left_ == 0) return aici::MidResult::stop();
    for (std::uint32_t token = 0; token < biases_.size(); token++)
      biases_[token] = text_.allows(token) ? 0 : aici::kForbidden;
    const std::size_t start = mix(last_ + mix(key_ + 1)) % ring_.size();
    for (std::size_t place = 0; place < green_; place++) biases_[ring_[(start + place) % ring_.size()]] += bias_;
    return aici::MidResult::dense(biases_);
  }

 private:
  std::uint32_t key_ = 0, left_ = 0;
  float bias_ = 0;
  std::size_t green_ = 0;
  aici::TokenId last_ = 0;
  aici::TokenSet text_;
  std::vector<aici::TokenId> ring_;
  std::vector<float> biases_;
};

}  // namespace

AICI_REGISTER(GreenList, init_prompt);
