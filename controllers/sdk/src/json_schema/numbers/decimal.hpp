// decimal.hpp - numbers of JSON, exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace aici::json_schema {

/// digits * 10^exponent. Zero has no digits; others neither begin nor end with 0.
struct Decimal {
  bool negative = false;
  std::string digits;
  std::int32_t exponent = 0;

  /// Of a number in the spelling of JSON; nothing if it is longer or larger than `most` digits, written out.
  static std::optional<Decimal> of(std::string_view text, std::uint32_t most);
  static Decimal of(std::uint64_t number);

  bool zero() const { return digits.empty(); }
  bool integral() const { return exponent >= 0; }
  /// Without a sign and an exponent: the digits before the point ("0" at least), and those behind it.
  std::string whole() const;
  std::string fraction() const;
  /// `-12.5`
  std::string plain() const;
  Decimal negated() const;
  /// The nearest integers: not above, not below; and the next integer.
  Decimal floor() const;
  Decimal ceiling() const { return negated().floor().negated(); }
  Decimal plus(int one) const;

  bool operator==(const Decimal&) const = default;
};

/// -1, 0 or 1.
int compare(const Decimal& a, const Decimal& b);
/// Is a / b an integer? b is above 0.
bool is_multiple(const Decimal& a, const Decimal& b);

}  // namespace aici::json_schema
