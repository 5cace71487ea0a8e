#include "aici/tokenwise.hpp"

#include <algorithm>

namespace aici::detail {

MidResult as_result(std::vector<float>&& biases) {
  if (biases.size() != vocabulary().size())
    fail("a controller must give one bias for every token of the vocabulary");
  if (!std::all_of(biases.begin(), biases.end(), [](float bias) { return bias == 0 || bias == kForbidden; }))
    return MidResult::dense(std::move(biases));
  TokenSet allowed;
  for (TokenId token = 0; token < biases.size(); token++)
    if (biases[token] == 0) allowed.allow(token);
  return MidResult::sample(std::move(allowed));
}

}  // namespace aici::detail
