// text_list.hpp - reads the argument of choice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

/// The texts of a JSON list of strings (if the argument begins with `[`), or of lines. Fails with a message
/// that says what is wrong and at which byte.
std::vector<std::string> read_text_list(std::string_view argument);
