// row.hpp - which tokens may come next, and how one of them is chosen.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "aici/controller.hpp"

namespace script {

struct Row {
  /// Empty: any token may come.
  std::vector<std::uint32_t> mask;
  /// 0: the request's own.
  float temperature = 0;
  /// So many of the likeliest tokens are wanted.
  std::uint32_t top = 0;

  /// Lasts as long as the mask does.
  aici::MidResult result() const {
    aici::MidResult row = mask.empty()
                              ? aici::MidResult::sample_any()
                              : aici::MidResult::bits(mask.data(), static_cast<std::uint32_t>(mask.size()));
    return std::move(row).with_temperature(temperature).with_top(top);
  }
};

}  // namespace script
