// utf8.hpp - decodes one character of UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "aici/detail/regex/codepoint_set.hpp"

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

}  // namespace aici::regex
