// lines.hpp - the lines of a controller argument.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aici {

/// The lines of a text, without the `\n` that ends them, which the last one need not have. Empty ones count.
std::vector<std::string> lines(std::string_view text);

}  // namespace aici
