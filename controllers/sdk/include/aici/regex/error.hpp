// error.hpp - the reason and position of a refused pattern.
#pragma once

#include <cstdint>
#include <string>

namespace aici::regex {

struct Error {
  std::uint32_t offset = 0;  ///< bytes of the pattern before the error
  std::uint32_t line = 1;    ///< counted from 1
  std::uint32_t column = 1;  ///< characters, counted from 1
  std::string message;       ///< the reason, and what is allowed
  bool no_text = false;      ///< the pattern is valid, but no text matches it

  /// Returns "column 5: ..."; names the line, too, if it is not the first.
  std::string text() const;
};

}  // namespace aici::regex
