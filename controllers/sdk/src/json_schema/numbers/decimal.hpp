// decimal.hpp - exact numbers of JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aici::json_schema {

/// digits * 10^exponent. Zero has no digits; other numbers neither begin nor end with 0.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int32_t exponent = 0;

  /// Parses a number in the spelling of JSON; nothing if it has more than `most` digits when written out.
  static std::optional<Decimal> of(std::string_view text, std::uint32_t most);
  static Decimal of(std::uint64_t number);

  bool zero() const { return digits.empty(); }
  bool integral() const { return exponent >= 0; }
  /// Return the digits before the point (at least "0") and after it, without sign and exponent.
  std::string whole() const;
  std::string fraction() const;
  /// Returns a text such as `-12.5`.
  std::string plain() const;
  Decimal negated() const;
  /// Return the nearest integer that is not above, or not below, the number; and the sum of an integer and `one`.
  Decimal floor() const;
  Decimal ceiling() const { return negated().floor().negated(); }
  Decimal plus(int one) const;

  bool operator==(const Decimal&) const = default;
};

/// Returns -1, 0 or 1.
int compare(const Decimal& a, const Decimal& b);
/// Returns whether a / b is an integer; b is above 0.
bool is_multiple(const Decimal& a, const Decimal& b);

}  // namespace aici::json_schema
