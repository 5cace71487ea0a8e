// row.hpp - the allowed tokens, the biases and the sampling options for the next token.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "aici/controller.hpp"

namespace script {

struct Row {
  /// Empty: any token is allowed.
  std::vector<std::uint32_t> mask;
  /// A bias for every token, kForbidden for those that the mask forbids; empty: none.
  std::vector<float> biases;
  /// 0: the request's temperature.
  float temperature = 0;
  /// Number of most likely tokens to report.
  std::uint32_t top = 0;

  /// Valid as long as the mask and the biases are.
  aici::MidResult result() const {
    aici::MidResult row = !biases.empty() ? aici::MidResult::dense(std::span<const float>(biases))
                          : mask.empty()
                              ? aici::MidResult::sample_any()
                              : aici::MidResult::bits(mask.data(), static_cast<std::uint32_t>(mask.size()));
    return std::move(row).with_temperature(temperature).with_top_logprobs(top);
  }
};

}  // namespace script
