// byte_search.hpp - finds a byte in a short array, eight bytes at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace aici::detail {

/// The first of `bytes[0..count)` that is `byte`, or `count`. Up to 7 bytes behind them are read too.
inline std::uint32_t find_byte(const std::uint8_t* bytes, std::uint32_t count, std::uint8_t byte) {
  constexpr std::uint64_t kOnes = 0x0101010101010101, kHighBits = 0x8080808080808080;
  const std::uint64_t wanted = kOnes * byte;
  for (std::uint32_t at = 0; at < count; at += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes + at, sizeof eight);
    eight ^= wanted;
    // The lowest of these bits is that of the first byte that is zero now; higher ones may be wrong.
    if (const std::uint64_t zeros = (eight - kOnes) & ~eight & kHighBits) {
      at += static_cast<std::uint32_t>(std::countr_zero(zeros)) / 8;
      return at < count ? at : count;
    }
  }
  return count;
}

}  // namespace aici::detail
