// chunks.hpp - what %regex {...} describes: a text in pieces, of which any that follow each other may come.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "../front/source.hpp"

namespace aici::lark {

/// Reads {"substring_chars": "..."}, {"substring_words": "..."} or {"substring_chunks": ["...", ...]}. Is it the first?
bool read_chunks(const front::Source& source, std::string_view object, std::size_t at,
                 std::vector<std::string>* chunks);

}  // namespace aici::lark
