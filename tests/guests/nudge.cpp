// nudge: influences a model as its argument says, a word and a value:
//   sparse TOKEN BIAS | dense TOKEN BIAS   adds a bias to the logit of one token, in every step
//   say TEXT                               splices this text in the second step, then lets the model write freely
//   stop STEP | trap STEP | loop STEP      lets the model write freely until this step
#include <cstdlib>
#include <string>

#include "aici/sdk.hpp"

class Nudge : public aici::Controller {
 public:
  explicit Nudge(std::string_view argument) {
    const std::size_t space = argument.find(' ');
    if (space == std::string_view::npos) aici::fail("nudge needs a word and a value");
    word_ = argument.substr(0, space);
    text_ = argument.substr(space + 1);
    char* rest = nullptr;
    number_ = static_cast<std::uint32_t>(std::strtoul(text_.c_str(), &rest, 10));
    bias_ = std::strtof(rest, nullptr);
  }

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    if (word_ == "sparse") return aici::MidResult::biases({{number_, bias_}});
    if (word_ == "dense") {
      std::vector<float> biases(aici::vocabulary().size());
      biases[number_] = bias_;
      return aici::MidResult::dense(std::move(biases));
    }
    const std::uint32_t now = aici::step().number();
    if (word_ == "say" && now == 2) return aici::MidResult::splice(0, aici::tokenize(text_));
    if (word_ == "stop" && now == number_) return aici::MidResult::stop();
    if (word_ == "trap" && now == number_) __builtin_trap();
    if (word_ == "loop" && now == number_)
      for (volatile unsigned i = 0;; i = i + 1) {
      }
    return aici::MidResult::sample_any();
  }

 private:
  std::string word_, text_;
  std::uint32_t number_ = 0;
  float bias_ = 0;
};

AICI_REGISTER(Nudge);
