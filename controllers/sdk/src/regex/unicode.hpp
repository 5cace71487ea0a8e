// unicode.hpp - UTF-8, Unicode properties and case folding, of the version that unicode_version() returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "aici/detail/regex/automaton.hpp"

namespace aici::regex {

inline constexpr std::uint32_t kInvalidUtf8 = 0xffffffff;

/// Decodes the character at *at and moves past it. If it is not well-formed, returns kInvalidUtf8 and moves by one
/// byte.
inline std::uint32_t decode_utf8(std::string_view text, std::size_t* at) {
  const auto lead = static_cast<unsigned char>(text[(*at)++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || *at + static_cast<std::size_t>(more) > text.size()) return kInvalidUtf8;
  std::uint32_t value = lead & (0x3Fu >> more);
  for (int i = 0; i < more; i++) {
    const auto byte = static_cast<unsigned char>(text[*at + static_cast<std::size_t>(i)]);
    if ((byte & 0xC0) != 0x80) return kInvalidUtf8;
    value = value << 6 | (byte & 0x3Fu);
  }
  constexpr std::uint32_t kMin[] = {0, 0x80, 0x800, 0x10000};
  if (value < kMin[more] || !is_scalar(value)) return kInvalidUtf8;
  *at += static_cast<std::size_t>(more);
  return value;
}

/// Appends the bytes of a scalar value.
template <class Bytes>
void encode_utf8(std::uint32_t c, Bytes* out) {
  const auto push = [&](std::uint32_t byte) { out->push_back(static_cast<typename Bytes::value_type>(byte)); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | c >> 6), push(0x80 | (c & 63));
  } else if (c < 0x10000) {
    push(0xE0 | c >> 12), push(0x80 | (c >> 6 & 63)), push(0x80 | (c & 63));
  } else {
    push(0xF0 | c >> 18), push(0x80 | (c >> 12 & 63)), push(0x80 | (c >> 6 & 63)), push(0x80 | (c & 63));
  }
}

const char* unicode_version();

/// Finds the characters of `\p{name}`: a general category, a script or a property, or key=value with the key
/// gc (general_category) or sc (script). Ignores case, spaces, '_' and '-' in names. Returns false if there is no such
/// name.
bool find_property(std::string_view name, CodepointSet* out);

/// Return the sets of `\d`, `\s` and `\w` in Unicode: Nd; White_Space; Alphabetic, M, Nd, Pc and Join_Control (UTS 18,
/// annex C).
CodepointSet unicode_digit();
CodepointSet unicode_space();
CodepointSet unicode_word();

/// Adds all characters that simple case folding makes equal to a member of the set.
CodepointSet fold_case(const CodepointSet& set);
/// The same, only for the letters A-Z and a-z.
CodepointSet fold_case_ascii(const CodepointSet& set);

// The packed tables, in unicode_data.cpp; controllers/sdk/tools/unicode_tables.py describes the format.

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
