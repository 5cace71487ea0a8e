// unicode_data.hpp - the packed Unicode tables; controllers/sdk/tools/unicode_tables.py describes the format.
#pragma once

#include <cstdint>

namespace aici::regex {

extern const char kUnicodeVersion[];

// Names are in lower case without underscores. Spaces separate the spellings of an entry, and '\n' separates entries.
extern const char kCategoryNames[];
extern const char kGroupNames[];
extern const char kScriptNames[];
extern const char kPropertyNames[];
/// For each line of kGroupNames, the set of its categories.
extern const std::uint32_t kGroupMasks[];

extern const std::uint8_t kCategoryRuns[];
extern const std::uint8_t kScriptRuns[];
extern const std::uint8_t kProperties[];
extern const std::uint8_t kFolds[];
extern const std::uint32_t kFoldsSize;

}  // namespace aici::regex
