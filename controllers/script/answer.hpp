// answer.hpp - what a script's callback has answered.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "aici/types.hpp"
#include "row.hpp"

namespace script {

/// By default to go on: any token may come.
struct Answer {
  bool stop = false, suspend = false, splice = false;
  std::optional<std::uint32_t> forks;
  Row row;
  std::uint32_t backtrack = 0;
  std::vector<aici::TokenId> tokens;
};

/// That of the callback that is running.
Answer& answer();

}  // namespace script
