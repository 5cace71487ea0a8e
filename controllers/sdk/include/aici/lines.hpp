// lines.hpp - the lines of a controller argument.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aici {

/// Returns the lines of a text, including empty ones, without their final `\n`, which the last line may lack.
std::vector<std::string> lines(std::string_view text);

}  // namespace aici
