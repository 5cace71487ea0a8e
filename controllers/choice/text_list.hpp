// text_list.hpp - reads the argument of choice.
#pragma once

#include <string>
#include <string_view>
#include <vector>

/// Returns the texts of a JSON list of strings (if the argument begins with `[`), or of lines. Fails with a message
/// that gives the error and the byte offset.
std::vector<std::string> read_text_list(std::string_view argument);
