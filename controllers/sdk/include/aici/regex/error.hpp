// error.hpp - why a pattern was refused, and where.
#pragma once

#include <cstdint>
#include <string>

namespace aici::regex {

struct Error {
  std::uint32_t offset = 0;  ///< bytes of the pattern before the place
  std::uint32_t line = 1;    ///< counted from 1
  std::uint32_t column = 1;  ///< characters, counted from 1
  std::string message;       ///< what is wrong and what is allowed
  bool no_text = false;      ///< nothing is wrong with the pattern, but no text matches it

  /// "column 5: ..." (the line is said if it is not the first).
  std::string text() const;
};

}  // namespace aici::regex
