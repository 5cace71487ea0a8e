// limits.hpp - every bound of the translation of JSON Schema. A schema beyond one is refused with an error that says so.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aici::json_schema {

struct Limits {
  /// Longest schema. Reading takes about 30 ns a byte.
  std::size_t text_bytes = 4 << 20;
  /// Deepest nesting of arrays and objects in the text. Nothing recurses over them.
  std::uint32_t depth = 512;
  /// Schemas that apply to one value in one another ($ref, allOf, anyOf...): these recurse, and a controller's stack is
  /// small.
  std::uint32_t in_place_depth = 48;
  /// Deepest nesting of a value in enum or const that is an array or an object.
  std::uint32_t value_depth = 32;
  /// Ways to meet one schema (combinations of anyOf, oneOf, if, not...) that are looked at, for one value and over all.
  std::uint32_t combinations = 10'000, all_combinations = 60'000;
  /// Sets of schemas that apply to one value together: the rules of the grammar.
  std::uint32_t goals = 20'000;
  /// Names in one object, of properties or in `required`.
  std::uint32_t names = 10'000;
  /// Rules for the numbers of properties or items that have been written, where they must be counted.
  std::uint32_t counted_states = 20'000;
  /// Values of an enumeration whose items must be unique: their sets are written out.
  std::uint32_t unique_values = 8;
  /// Longest number in a schema that is compared with others.
  std::uint32_t number_digits = 400;
};

}  // namespace aici::json_schema
