// numbers.hpp - exact numbers of JSON, and numbers within bounds as patterns of aici/regex over their decimal spelling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// The numbers between two bounds; without one, there is no limit.
struct Range {
  std::optional<Decimal> low, high;
  bool low_open = false, high_open = false;

  bool bounded() const { return low || high; }
  bool empty() const;
  bool contains(const Decimal& number) const;
};

/// Returns a pattern for integers, without a fraction. Both signs of zero are zero. If a bound has more than 64 digits,
/// and the other one does not exclude all shorter numbers, numbers have at most 64 digits before the point.
std::string integer_pattern(const Range& range);
/// Returns a pattern for all numbers. Without bounds, or with the only bound of 0 or more, in any spelling of JSON;
/// otherwise only zero has exponents, and long bounds are those of integer_pattern. Next to an open bound it allows at most 15 digits, so that no reader rounds to
/// the bound.
std::string number_pattern(const Range& range);
/// Returns a pattern for numbers that are not integers.
std::string fraction_pattern();

/// Returns a pattern for multiples of `divisor` (above 0), in any range; nothing if there is none of moderate size.
std::optional<std::string> multiple_pattern(const Decimal& divisor, bool integers);

/// Returns the integer whose multiples are the integer multiples of `divisor`; 0 if it is too large.
std::uint64_t whole_divisor(const Decimal& divisor);

/// Returns a pattern for the texts that match all patterns.
std::string both_patterns(const std::vector<std::string>& patterns);

}  // namespace aici::json_schema
