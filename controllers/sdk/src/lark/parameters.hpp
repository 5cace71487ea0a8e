// parameters.hpp - the 64-bit parameters of rules: what a call passes on, and under which conditions an alternative
// exists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../front/source.hpp"

namespace aici::lark {

/// A function of the parameter p of a rule. Bits x (inclusive) to y (exclusive) of p are p[x:y].
struct LarkFunction {
  enum class Kind : std::uint8_t {
    kValue,     ///< `value`
    kSame,      ///< p
    kAnd,       ///< p & value
    kOr,        ///< p | value
    kIncrease,  ///< p with p[x:y] increased, unless all its bits are set
    kDecrease,  ///< p with p[x:y] decreased, unless it is 0
  };
  Kind kind = Kind::kValue;
  std::uint64_t value = 0;
  unsigned x = 0, y = 64;

  std::uint64_t operator()(std::uint64_t p) const;
};

/// A condition on the parameter of a rule: compares p[x:y], or the number of its set bits, with a value.
struct LarkCondition {
  enum class Kind : std::uint8_t { kTrue, kEqual, kLess, kMore, kNot, kBoth, kEither };
  Kind kind = Kind::kTrue;
  bool counts = false;  ///< compares the number of set bits
  unsigned x = 0, y = 64;
  std::uint64_t value = 0;
  std::vector<LarkCondition> parts{};

  bool holds(std::uint64_t p) const;
};

/// Reads what follows `::` in a call, such as `set_bit(3)`, `_` or `0x0`.
LarkFunction read_lark_function(front::Source& source);
/// Reads what follows `%if`, such as `and(bit_clear(0), lt([4:8], 3))`.
LarkCondition read_lark_condition(front::Source& source);

}  // namespace aici::lark
