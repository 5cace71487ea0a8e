// chunks.hpp - reads %regex {...}: a text in chunks, of which any run of consecutive ones is allowed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "../front/source.hpp"

namespace aici::lark {

/// Reads {"substring_chars": "..."}, {"substring_words": "..."} or {"substring_chunks": ["...", ...]}. Returns whether
/// it is the first form.
bool read_chunks(const front::Source& source, std::string_view object, std::size_t at,
                 std::vector<std::string>* chunks);

}  // namespace aici::lark
