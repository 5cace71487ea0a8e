#include "parameters.hpp"

#include <bit>
#include <string>
#include <string_view>
#include <utility>

#include "words.hpp"

namespace aici::lark {

using front::Source;

namespace {

/// Maximum nesting of and(), or() and not(). The reader recurses.
constexpr unsigned kMaxNested = 32;

std::uint64_t ones(unsigned count) { return count >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1; }

std::uint64_t bits_of(std::uint64_t p, unsigned x, unsigned y) { return p >> x & ones(y - x); }

void expect(Source& source, std::string_view what) {
  skip_lark_spaces(source);
  if (!source.accept(what)) source.fail_here("`" + std::string(what) + "`");
  skip_lark_spaces(source);
}

/// Reads a number in decimal or, after 0x, in hexadecimal.
std::uint64_t take_value(Source& source) {
  skip_lark_spaces(source);
  const std::size_t at = source.at();
  const std::uint64_t base = source.accept("0x") ? 16 : 10;
  const std::size_t from = source.at();
  std::uint64_t value = 0;
  for (;; source.move(1)) {
    const int digit = front::hex_digit(source.peek());
    if (digit < 0 || static_cast<std::uint64_t>(digit) >= base) break;
    if (value > (~std::uint64_t{0} - static_cast<std::uint64_t>(digit)) / base)
      source.fail(at, "this number is too large: a parameter has 64 bits");
    value = value * base + static_cast<std::uint64_t>(digit);
  }
  if (source.at() == from) source.fail_here("a number");
  return value;
}

unsigned take_bit(Source& source, unsigned most) {
  skip_lark_spaces(source);
  const std::size_t at = source.at();
  const std::uint64_t bit = take_value(source);
  if (bit > most) source.fail(at, "a parameter has the bits 0 to 63");
  return static_cast<unsigned>(bit);
}

/// Reads [x:y], or `_` for all bits.
void take_range(Source& source, unsigned* x, unsigned* y) {
  skip_lark_spaces(source);
  if (source.accept("_")) return;
  const std::size_t at = source.at();
  expect(source, "[");
  *x = take_bit(source, 63);
  expect(source, ":");
  *y = take_bit(source, 64);
  expect(source, "]");
  if (*y <= *x) source.fail(at, "this range has no bits: its end must be above its start");
}

LarkCondition read_condition(Source& source, unsigned nested);

/// Reads the arguments of and(), or() and not().
void read_parts(Source& source, LarkCondition& made, std::size_t count, unsigned nested) {
  for (std::size_t i = 0; i < count; i++) {
    if (i > 0) expect(source, ",");
    made.parts.push_back(read_condition(source, nested + 1));
  }
}

LarkCondition inverse(LarkCondition condition) {
  return {.kind = LarkCondition::Kind::kNot, .parts = {std::move(condition)}};
}

/// Reads the arguments of a comparison, such as eq([0:3], 5). `name` has no bit_count_.
LarkCondition read_comparison(Source& source, std::size_t at, std::string_view name, bool counts) {
  using Kind = LarkCondition::Kind;
  constexpr std::pair<std::string_view, std::pair<Kind, bool>> kNames[] = {
      {"eq", {Kind::kEqual, false}}, {"ne", {Kind::kEqual, true}}, {"lt", {Kind::kLess, false}},
      {"ge", {Kind::kLess, true}},   {"gt", {Kind::kMore, false}}, {"le", {Kind::kMore, true}},
  };
  for (const auto& [known, meaning] : kNames) {
    if (name != known) continue;
    LarkCondition made{.kind = meaning.first, .counts = counts};
    take_range(source, &made.x, &made.y);
    expect(source, ",");
    made.value = take_value(source);
    return meaning.second ? inverse(std::move(made)) : made;
  }
  source.fail(at, "this condition is unknown; there are true, bit_set(k), bit_clear(k), is_ones([x:y]), is_zeros([x:y]), "
                  "eq, ne, lt, le, gt and ge([x:y], n), the same after bit_count_, and(c, c), or(c, c) and not(c)");
}

LarkCondition read_condition(Source& source, unsigned nested) {
  using Kind = LarkCondition::Kind;
  skip_lark_spaces(source);
  const std::size_t at = source.at();
  if (nested > kMaxNested) source.fail(at, "conditions are nested deeper than " + std::to_string(kMaxNested));
  std::string_view name = take_lark_name(source);
  skip_lark_spaces(source);
  if (name == "true") {
    if (source.accept("(")) expect(source, ")");
    return {};
  }
  LarkCondition made;
  expect(source, "(");
  if (name == "and" || name == "or") {
    made.kind = name == "and" ? Kind::kBoth : Kind::kEither;
    read_parts(source, made, 2, nested);
  } else if (name == "not") {
    made.kind = Kind::kNot;
    read_parts(source, made, 1, nested);
  } else if (name == "bit_set" || name == "bit_clear") {
    const unsigned bit = take_bit(source, 63);
    made = {.kind = Kind::kEqual, .x = bit, .y = bit + 1, .value = name == "bit_set"};
  } else if (name == "is_ones" || name == "is_zeros") {
    made.kind = Kind::kEqual;
    take_range(source, &made.x, &made.y);
    if (name == "is_ones") made.value = ones(made.y - made.x);
  } else {
    constexpr std::string_view kCounts = "bit_count_";
    const bool counts = name.starts_with(kCounts);
    made = read_comparison(source, at, counts ? name.substr(kCounts.size()) : name, counts);
  }
  expect(source, ")");
  return made;
}

}  // namespace

std::uint64_t LarkFunction::operator()(std::uint64_t p) const {
  const std::uint64_t now = bits_of(p, x, y), one = std::uint64_t{1} << x;
  switch (kind) {
    case Kind::kValue: return value;
    case Kind::kSame: return p;
    case Kind::kAnd: return p & value;
    case Kind::kOr: return p | value;
    case Kind::kIncrease: return now == ones(y - x) ? p : p + one;
    case Kind::kDecrease: return now == 0 ? p : p - one;
  }
  return p;
}

bool LarkCondition::holds(std::uint64_t p) const {
  const std::uint64_t bits = bits_of(p, x, y);
  const std::uint64_t now = counts ? static_cast<std::uint64_t>(std::popcount(bits)) : bits;
  switch (kind) {
    case Kind::kTrue: return true;
    case Kind::kEqual: return now == value;
    case Kind::kLess: return now < value;
    case Kind::kMore: return now > value;
    case Kind::kNot: return !parts[0].holds(p);
    case Kind::kBoth: return parts[0].holds(p) && parts[1].holds(p);
    case Kind::kEither: return parts[0].holds(p) || parts[1].holds(p);
  }
  return true;
}

LarkFunction read_lark_function(Source& source) {
  using Kind = LarkFunction::Kind;
  const std::size_t at = source.at();
  if (front::is_digit(source.peek())) return {.value = take_value(source)};
  const std::string_view name = take_lark_name(source);
  if (name == "_") return {.kind = Kind::kSame};
  LarkFunction made;
  expect(source, "(");
  if (name == "set_bit") {
    made = {.kind = Kind::kOr, .value = std::uint64_t{1} << take_bit(source, 63)};
  } else if (name == "clear_bit") {
    made = {.kind = Kind::kAnd, .value = ~(std::uint64_t{1} << take_bit(source, 63))};
  } else if (name == "bit_and" || name == "bit_or") {
    made = {.kind = name == "bit_and" ? Kind::kAnd : Kind::kOr, .value = take_value(source)};
  } else if (name == "incr" || name == "decr") {
    made.kind = name == "incr" ? Kind::kIncrease : Kind::kDecrease;
    take_range(source, &made.x, &made.y);
  } else {
    source.fail(at, "a parameter is a number, `_` for that of this rule, set_bit(k), clear_bit(k), bit_and(n), bit_or(n), "
                    "incr([x:y]) or decr([x:y])");
  }
  expect(source, ")");
  return made;
}

LarkCondition read_lark_condition(Source& source) { return read_condition(source, 0); }

}  // namespace aici::lark
