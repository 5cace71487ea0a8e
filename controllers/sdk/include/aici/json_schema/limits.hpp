// limits.hpp - the limits on JSON schemas. A schema beyond a limit is refused with an error that names it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aici::json_schema {

struct Limits {
  /// Maximum length of a schema. Reading takes about 30 ns per byte.
  std::size_t text_bytes = 4 << 20;
  /// Maximum nesting of arrays and objects in the text. No code recurses over them.
  std::uint32_t depth = 512;
  /// Maximum nesting of schemas that apply to the same value ($ref, allOf, anyOf...). The code recurses over them,
  /// and a controller's stack is small.
  std::uint32_t in_place_depth = 48;
  /// Maximum nesting of an array or object in enum or const.
  std::uint32_t value_depth = 32;
  /// Maximum number of combinations (of anyOf, oneOf, if, not...), for one value and in total.
  std::uint32_t combinations = 10'000, all_combinations = 60'000;
  /// Maximum number of goals: sets of schemas that apply to one value together. Each is a rule of the grammar.
  std::uint32_t goals = 20'000;
  /// Maximum number of names in one object, of properties or in `required`.
  std::uint32_t names = 10'000;
  /// Maximum number of rules that count written properties or items.
  std::uint32_t counted_states = 20'000;
  /// Maximum number of values of an enumeration with unique items; all their sets are expanded.
  std::uint32_t unique_values = 8;
  /// Maximum number of digits of a number that is compared with others.
  std::uint32_t number_digits = 400;
};

}  // namespace aici::json_schema
