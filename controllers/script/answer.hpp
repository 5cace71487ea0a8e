// answer.hpp - what a script's callback has answered.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "aici/types.hpp"

namespace script {

/// By default to go on: any token may come.
struct Answer {
  bool stop = false, suspend = false, splice = false;
  std::optional<std::uint32_t> forks;
  std::vector<std::uint32_t> mask;
  float temperature = 0;
  std::uint32_t top = 0;
  std::uint32_t backtrack = 0;
  std::vector<aici::TokenId> tokens;
};

/// That of the callback that is running.
Answer& answer();

}  // namespace script
