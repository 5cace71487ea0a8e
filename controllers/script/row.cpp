// Sampling options of scripts: their checks, and the rows that they make.
#include "row.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "aici/host.hpp"
#include "aici/vocabulary.hpp"
#include "failure.hpp"

namespace script {
namespace {

/// What the ABI has instead of "all tokens", where its 0 is the request's own option.
constexpr float kTinyShare = 1e-30f, kManyDeviations = 1e30f;
constexpr std::uint32_t kAllTokens = 0xffffffffu;

bool given(double number) { return !std::isnan(number); }
bool is_share(double number) { return !given(number) || (number > 0 && number <= 1); }

float number_or_own(double number, float at_zero) {
  return !given(number) ? 0 : number == 0 ? at_zero : static_cast<float>(number);
}

}  // namespace

Options::Options(const script_options& from)
    : temperature(number_or_own(from.temperature, AICI_GREEDY)),
      truncation{.top_p = number_or_own(from.top_p, 0),
                 .top_k = !given(from.top_k) ? 0 : from.top_k == 0 ? kAllTokens : static_cast<std::uint32_t>(from.top_k),
                 .min_p = number_or_own(from.min_p, kTinyShare),
                 .typical_p = number_or_own(from.typical_p, 0),
                 .top_n_sigma = number_or_own(from.top_n_sigma, kManyDeviations)},
      top_logprobs(from.top_logprobs),
      bias(static_cast<float>(from.bias)) {
  if (from.favoured != nullptr) favoured.assign(from.favoured, from.favoured + aici::vocabulary().mask_words());
  for (std::size_t i = 0; i < from.num_biases; i++) biases.push_back({from.biases[i].token, from.biases[i].bias});
  if (from.prediction.size != 0 && (max_drafts = aici::capability(aici::Capability::drafts)) != 0)
    prediction.assign(from.prediction.data, from.prediction.data + from.prediction.size);
}

aici::MidResult Options::apply(aici::MidResult row) const {
  const aici_mid_result& raw = row.raw();
  const float its_temperature = raw.temperature;
  if (has_biases() && raw.verb == AICI_SAMPLE) {
    if (raw.row_kind == AICI_ROW_BITMASK)
      row = biased(reinterpret_cast<const std::uint32_t*>(raw.row));
    else if (raw.row_kind == AICI_ROW_ALL)
      row = biased(nullptr);
  }
  if (prediction.size() > 1 && raw.verb == AICI_SAMPLE)
    row.with_drafts({prediction.begin() + 1, prediction.begin() + 1 + std::min(max_drafts, prediction.size() - 1)});
  return std::move(row)
      .with_temperature(its_temperature != 0 ? its_temperature : temperature)
      .with_truncation(truncation)
      .with_top_logprobs(top_logprobs);
}

aici::MidResult Options::biased(const std::uint32_t* mask) const {
  const std::uint32_t size = aici::vocabulary().size();
  const std::uint32_t fit = size / 64;  // entries of a sparse row
  if (mask == nullptr && favoured.empty() && biases.size() <= fit) return aici::MidResult::biases(biases);
  std::vector<float> all(size);
  if (!favoured.empty())
    for (aici::TokenId token = 0; token < size; token++) all[token] = has(favoured.data(), token) ? bias : 0;
  for (const aici::Bias& one : biases) all[one.token] += one.bias;
  if (mask != nullptr)
    for (aici::TokenId token = 0; token < size; token++)
      if (!has(mask, token)) all[token] = aici::kForbidden;
  const auto changed = std::count_if(all.begin(), all.end(), [](float each) { return each != 0; });
  const auto allowed = std::count_if(all.begin(), all.end(), [](float each) { return each > aici::kForbidden; });
  if (std::min(changed, allowed) > static_cast<std::ptrdiff_t>(fit)) return aici::MidResult::dense(std::move(all));
  // an engine has few dense rows
  const float others = changed <= static_cast<std::ptrdiff_t>(fit) ? 0 : aici::kForbidden;
  std::vector<aici::Bias> few;
  for (aici::TokenId token = 0; token < size; token++)
    if (all[token] != others) few.push_back({token, all[token]});
  return aici::MidResult::biases(std::move(few), others);
}

}  // namespace script

const char* script_flaw(const script_options* of) {
  using script::failure;
  using script::given;
  if (given(of->temperature) && !(of->temperature >= 0 && of->temperature < 1e30))
    return "a temperature is 0 (the most likely token) or more";
  if (!script::is_share(of->top_p)) return "top_p is above 0 and at most 1, which keeps all tokens";
  if (!script::is_share(of->typical_p)) return "typical_p is above 0 and at most 1, which keeps all tokens";
  if (given(of->min_p) && !(of->min_p >= 0 && of->min_p <= 1)) return "min_p is 0, which keeps all tokens, to 1";
  if (given(of->top_k) && !(of->top_k >= 0 && of->top_k < 4294967296.0 && of->top_k == std::floor(of->top_k)))
    return "top_k is a whole number; 0 keeps all tokens";
  if (given(of->top_n_sigma) && !(of->top_n_sigma >= 0 && of->top_n_sigma < 1e30))
    return "top_n_sigma is 0, which keeps all tokens, or a positive number";
  if (!std::isfinite(static_cast<float>(of->bias))) return "a bias is a finite number";
  for (std::size_t i = 0; i < of->num_biases; i++) {
    if (of->biases[i].token >= aici::vocabulary().size())
      return failure("biases: there is no token " + std::to_string(of->biases[i].token) + ": the vocabulary has " +
                     std::to_string(aici::vocabulary().size()));
    if (!(of->biases[i].bias < std::numeric_limits<float>::infinity()))
      return failure("biases: that of token " + std::to_string(of->biases[i].token) +
                     " is not a number, or -infinity, which forbids the token");
  }
  for (std::size_t i = 0; i < of->prediction.size; i++)
    if (of->prediction.data[i] >= aici::vocabulary().size())
      return failure("prediction: there is no token " + std::to_string(of->prediction.data[i]));
  return nullptr;
}
