// common.hpp - the terminals that a grammar may import from `common`.
#pragma once

#include <string>
#include <string_view>

namespace aici::lark {

/// Returns the regular expression of a terminal, or null.
const char* common_terminal(std::string_view name);
/// Returns the names of all terminals, for messages.
std::string common_names();

}  // namespace aici::lark
