// tilt: answers every step with the row that its argument describes: a kind, a temperature, and pairs TOKEN BIAS
//   all | sparse | only | dense    "only" forbids all other tokens; "dense" forbids each seventh token without a bias
//   say                            adds the n-th bias to the n-th token in the n-th step, then lets the model write
// The temperature is a number, "g" (greedy), or "-" (the request's). It alternates between greedy and 2 ("h"), or
// between greedy and the request's ("x"). An option that leaves out tokens may follow: 2/min_p=0.1
// With MASS it prints the allowed mass of each sampled token.
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

#include "aici/sdk.hpp"

class Tilt : public aici::Controller {
 public:
  explicit Tilt(std::string_view argument) {
    std::istringstream words{std::string(argument)};
    words >> kind_ >> temperature_;
    const std::size_t at = temperature_.find('/');
    const std::string options = at == std::string::npos ? "" : temperature_.substr(at);
    temperature_.resize(temperature_.size() - options.size());
    std::sscanf(options.c_str(), "/top_p=%f", &truncation_.top_p);
    std::sscanf(options.c_str(), "/top_k=%u", &truncation_.top_k);
    std::sscanf(options.c_str(), "/min_p=%f", &truncation_.min_p);
    std::sscanf(options.c_str(), "/typical_p=%f", &truncation_.typical_p);
    std::sscanf(options.c_str(), "/top_n_sigma=%f", &truncation_.top_n_sigma);
    for (aici::Bias bias; words >> bias.token >> bias.bias;) biases_.push_back(bias);
  }

#ifdef MASS
  aici::PostResult post_process(std::span<const aici::TokenId>) {
    if (aici::step().sampled()) std::printf("%.5f\n", static_cast<double>(aici::step().allowed_mass()));
    std::fflush(stdout);
    return aici::PostResult::go_on();
  }
#endif

  aici::MidResult mid_process(std::span<const aici::SeqId>) {
    const std::uint32_t now = aici::step().number();
    aici::MidResult result = answer(now).with_truncation(truncation_);
    if (temperature_ == "-" || (temperature_ == "x" && now % 2 == 0)) return result;
    if (temperature_ == "h") return result.with_temperature(now % 2 == 1 ? AICI_GREEDY : 2.0f);
    if (temperature_ == "g" || temperature_ == "x") return result.with_temperature(AICI_GREEDY);
    return result.with_temperature(std::strtof(temperature_.c_str(), nullptr));
  }

 private:
  aici::MidResult answer(std::uint32_t now) const {
    if (kind_ == "sparse") return aici::MidResult::biases(std::vector(biases_));
    if (kind_ == "only") return aici::MidResult::biases(std::vector(biases_), aici::kForbidden);
    if (kind_ == "say" && now <= biases_.size()) return aici::MidResult::biases({biases_[now - 1]});
    if (kind_ == "dense") {
      std::vector<float> biases(aici::vocabulary().size());
      for (std::size_t token = 3; token < biases.size(); token += 7) biases[token] = aici::kForbidden;
      for (const aici::Bias& bias : biases_) biases[bias.token] = bias.bias;
      return aici::MidResult::dense(std::move(biases));
    }
    return aici::MidResult::sample_any();
  }

  std::string kind_, temperature_;
  aici::Truncation truncation_;
  std::vector<aici::Bias> biases_;
};

#ifdef MASS
AICI_REGISTER(Tilt, post_process);
#else
AICI_REGISTER(Tilt);
#endif
