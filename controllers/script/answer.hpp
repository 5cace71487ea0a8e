// answer.hpp - the answer of a script's callback.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "aici/types.hpp"
#include "row.hpp"

namespace script {

/// The default is to continue with any token.
struct Answer {
  bool stop = false, suspend = false, splice = false;
  std::optional<std::uint32_t> forks;
  Row row;
  /// The number of likely tokens to look at; 0: at all logits.
  std::optional<std::uint32_t> look;
  std::uint32_t backtrack = 0;
  std::vector<aici::TokenId> tokens;
};

/// Returns the answer of the running callback.
Answer& answer();

}  // namespace script
