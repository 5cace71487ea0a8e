// common.hpp - the terminals that a grammar may import from `common`.
#pragma once

#include <string>
#include <string_view>

namespace aici::lark {

/// A regular expression, or null.
const char* common_terminal(std::string_view name);
/// All their names, for messages.
std::string common_names();

}  // namespace aici::lark
