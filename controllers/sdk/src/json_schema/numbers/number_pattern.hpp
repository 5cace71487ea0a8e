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

/// Integers, without a fraction.
std::string integer_pattern(const Range& range);
/// All numbers. Without bounds, or if they are only to be 0 or more, in any spelling of JSON; else without an exponent.
/// Next to an open bound no more than 15 digits are allowed, so that no reader rounds to the bound.
std::string number_pattern(const Range& range);
/// Numbers that are no integers.
std::string fraction_pattern();

/// The spelling of multiples of `divisor` (above 0), for any range: nothing if there is no pattern of modest size.
std::optional<std::string> multiple_pattern(const Decimal& divisor, bool integers);

/// Integers are multiples of `divisor` if they are of this; 0 if it is too large to say.
std::uint64_t whole_divisor(const Decimal& divisor);

/// Texts that match all of these.
std::string both_patterns(const std::vector<std::string>& patterns);

}  // namespace aici::json_schema
