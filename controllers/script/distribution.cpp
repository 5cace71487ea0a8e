// Functions of script.h for distributions, given by logits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "script.h"

double script_norm(const float *logits, size_t size) {
  const float largest = *std::max_element(logits, logits + size);
  double sum = 0;
  for (size_t token = 0; token < size; token++) sum += static_cast<double>(std::exp(logits[token] - largest));
  return static_cast<double>(largest) + std::log(sum);
}

double script_entropy(const float *logits, size_t size, double norm) {
  double entropy = 0;
  for (size_t token = 0; token < size; token++) {
    const double logprob = static_cast<double>(logits[token]) - norm;
    if (std::isfinite(logprob)) entropy -= std::exp(logprob) * logprob;
  }
  return entropy;
}

double script_mass(const float *logits, size_t size, double norm, const uint32_t *mask) {
  double mass = 0;
  for (size_t token = 0; token < size; token++)
    if ((mask[token / 32] >> token % 32 & 1) != 0) mass += std::exp(static_cast<double>(logits[token]) - norm);
  return mass;
}

void script_likely(const float *logits, size_t size, double norm, script_top *top, size_t count) {
  std::vector<std::uint32_t> tokens(size);
  std::iota(tokens.begin(), tokens.end(), 0u);
  const auto end = tokens.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](std::uint32_t one, std::uint32_t other) {
    return logits[one] != logits[other] ? logits[one] > logits[other] : one < other;
  });
  for (size_t i = 0; i < count; i++)
    top[i] = {tokens[i], static_cast<float>(static_cast<double>(logits[tokens[i]]) - norm)};
}
