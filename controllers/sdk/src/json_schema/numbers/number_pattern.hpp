// number_pattern.hpp - numbers within bounds, as patterns of aici/regex over their decimal spelling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "decimal.hpp"

namespace aici::json_schema {

struct Range {
  std::optional<Decimal> low, high;
  bool low_open = false, high_open = false;

  bool bounded() const { return low || high; }
  bool empty() const;
  bool contains(const Decimal& number) const;
};

/// Returns a pattern for integers, without a fraction. Both signs of zero are zero.
std::string integer_pattern(const Range& range);
/// Returns a pattern for all numbers. Without bounds, or with the only bound of 0 or more, in any spelling of JSON;
/// otherwise only zero has exponents. Next to an open bound it allows at most 15 digits, so that no reader rounds to
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
