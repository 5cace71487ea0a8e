#include "number_pattern.hpp"

#include <algorithm>
#include <numeric>

#include "aici/number.hpp"

namespace aici::json_schema {
namespace {

constexpr std::size_t kSafeDigits = 15;
constexpr const char* kWhole = "(?:0|[1-9][0-9]*)";
constexpr const char* kExponent = "(?:[eE][+-]?[0-9]+)?";
/// Zero in every spelling of JSON.
constexpr const char* kZero = "-?0(?:\\.0+)?(?:[eE][+-]?[0-9]+)?";

std::string count(std::size_t number) { return std::string(Number(static_cast<std::uint32_t>(number)).text()); }

/// One digit from `low` to `high`, which are in order.
std::string digit(char low, char high) {
  if (low == high) return {low};
  return std::string("[") + low + "-" + high + "]";
}

std::string any_digits(std::size_t number) { return number == 0 ? "" : "[0-9]{" + count(number) + "}"; }

/// Alternatives; without any, a pattern that matches nothing.
std::string choice(const std::vector<std::string>& texts) {
  if (texts.empty()) return "[a&&b]";
  if (texts.size() == 1) return texts[0];
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "(?:" : "|") + text;
  return out + ")";
}

/// Adds texts with as many digits as `low` that are not below it.
void same_size_from(std::string_view low, const std::string& prefix, std::vector<std::string>* out) {
  for (std::size_t i = 0; i < low.size(); i++)
    if (low[i] < '9')
      out->push_back(prefix + std::string(low.substr(0, i)) + digit(static_cast<char>(low[i] + 1), '9') +
                     any_digits(low.size() - i - 1));
  out->push_back(prefix + std::string(low));
}

void same_size_up_to(std::string_view high, const std::string& prefix, char first, std::vector<std::string>* out) {
  for (std::size_t i = 0; i < high.size(); i++) {
    const char least = i == 0 ? first : '0';
    if (high[i] > least)
      out->push_back(prefix + std::string(high.substr(0, i)) + digit(least, static_cast<char>(high[i] - 1)) +
                     any_digits(high.size() - i - 1));
  }
  out->push_back(prefix + std::string(high));
}

void same_size_between(std::string_view low, std::string_view high, std::vector<std::string>* out) {
  std::size_t same = 0;
  while (same < low.size() && low[same] == high[same]) same++;
  if (same == low.size()) return out->push_back(std::string(low));
  const std::string prefix(low.substr(0, same));
  if (high[same] - low[same] > 1)
    out->push_back(prefix + digit(static_cast<char>(low[same] + 1), static_cast<char>(high[same] - 1)) +
                   any_digits(low.size() - same - 1));
  same_size_from(low.substr(same + 1), prefix + low[same], out);
  same_size_up_to(high.substr(same + 1), prefix + high[same], '0', out);
}

/// Adds integers from `low` to `high`, neither negative nor with leading zeros. If `high` is empty, there is no limit.
void whole_between(const std::string& low, const std::string& high, std::vector<std::string>* out) {
  if (high.empty()) {
    same_size_from(low, "", out);
    out->push_back("[1-9][0-9]{" + count(low.size()) + ",}");
  } else if (low.size() == high.size()) {
    if (low <= high) same_size_between(low, high, out);
  } else if (low.size() < high.size()) {
    same_size_from(low, "", out);
    if (high.size() - low.size() > 1)
      out->push_back("[1-9][0-9]{" + count(low.size()) + "," + count(high.size() - 2) + "}");
    same_size_up_to(high, "", '1', out);
  }
}

/// Digits of a fraction after a decisive digit. The fraction has at most `most` digits.
struct Rest {
  std::size_t most;  ///< 0 = no limit
  std::string after(std::size_t used) const {
    if (most == 0) return "[0-9]*";
    return used >= most ? "" : "[0-9]{0," + count(most - used) + "}";
  }
};

/// Returns fractions that are not below (open: above) one: `.` and digits, or nothing where that is enough.
std::string fraction_from(const std::string& low, bool open) {
  const Rest rest{open ? std::max<std::size_t>(kSafeDigits, low.size() + 1) : 0};
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < low.size(); i++)
    if (low[i] < '9')
      texts.push_back(low.substr(0, i) + digit(static_cast<char>(low[i] + 1), '9') + rest.after(i + 1));
  if (!open && low.empty()) return "(?:\\.[0-9]+)?";
  if (open)
    texts.push_back(low + "[0-9]{0," + count(rest.most - low.size() - 1) + "}[1-9]0*");
  else
    texts.push_back(low + "[0-9]*");
  return "\\." + choice(texts);
}

/// Returns fractions that are not above (open: below) one.
std::string fraction_up_to(const std::string& high, bool open) {
  if (high.empty()) return open ? "[a&&b]" : "(?:\\.0+)?";
  const Rest rest{open ? std::max<std::size_t>(kSafeDigits, high.size()) : 0};
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < high.size(); i++) {
    if (high[i] > '0')
      texts.push_back(high.substr(0, i) + digit('0', static_cast<char>(high[i] - 1)) + rest.after(i + 1));
    if (i > 0) texts.push_back(high.substr(0, i));
  }
  if (!open) texts.push_back(high + "0*");
  return "(?:\\." + choice(texts) + ")?";
}

/// Returns numbers without a sign, from `low` (not negative) to `high`, if there is one.
std::string positive_pattern(const Decimal& low, bool low_open, const Decimal* high, bool high_open) {
  const std::string first = low.whole(), last = high ? high->whole() : "";
  if (high && first == last)
    return both_patterns({first + fraction_from(low.fraction(), low_open),
                          first + fraction_up_to(high->fraction(), high_open)});
  std::vector<std::string> texts{first + fraction_from(low.fraction(), low_open)}, between;
  if (high) texts.push_back(last + fraction_up_to(high->fraction(), high_open));
  const std::string next = low.floor().plus(1).plain();
  if (!high) {
    whole_between(next, "", &between);
  } else if (const Decimal before = high->floor().plus(-1); !before.negative) {
    whole_between(next, before.plain(), &between);
  }
  if (!between.empty()) texts.push_back(choice(between) + "(?:\\.[0-9]+)?");
  return choice(texts);
}

/// Returns the last `width` digits of multiples of `divisor`, which divides 10^width.
std::string last_digits(std::uint64_t divisor, std::size_t width, bool whole) {
  std::uint64_t power = 1;
  for (std::size_t i = 0; i < width; i++) power *= 10;
  std::vector<std::string> texts, small;
  for (std::uint64_t value = 0; value < power; value += divisor) {
    const std::string digits = std::to_string(value);
    texts.push_back(std::string(width - digits.size(), '0') + digits);
    if (digits.size() < width) small.push_back(digits);
    if (!whole && value > 0) texts.back().resize(texts.back().find_last_not_of('0') + 1);
  }
  if (!whole) return choice(texts);
  small.push_back("[1-9][0-9]*" + choice(texts));
  if (width == 1) small.push_back(choice(texts));
  // numbers of exactly this width, without leading zeros
  for (const std::string& text : texts)
    if (text[0] != '0' && width > 1) small.push_back(text);
  return choice(small);
}

}  // namespace

bool Range::empty() const {
  if (!low || !high) return false;
  const int order = compare(*low, *high);
  return order > 0 || (order == 0 && (low_open || high_open));
}

bool Range::contains(const Decimal& number) const {
  if (low && compare(number, *low) < (low_open ? 1 : 0)) return false;
  return !high || compare(number, *high) <= (high_open ? -1 : 0);
}

std::string both_patterns(const std::vector<std::string>& patterns) {
  if (patterns.size() == 1) return patterns[0];
  std::string out;
  for (const std::string& pattern : patterns) out += (out.empty() ? "(?not:(?not:" : "|(?not:") + pattern + ")";
  return out + ")";
}

std::string integer_pattern(const Range& range) {
  if (!range.bounded()) return std::string("-?") + kWhole;
  std::optional<Decimal> low, high;
  if (range.low) low = range.low_open && range.low->integral() ? range.low->plus(1) : range.low->ceiling();
  if (range.high) high = range.high_open && range.high->integral() ? range.high->plus(-1) : range.high->floor();
  std::vector<std::string> texts, negative;
  if (!high || !high->negative)
    whole_between(low && !low->negative ? low->whole() : "0", high ? high->whole() : "", &texts);
  if (!low || low->negative) {
    const bool below = high && high->negative;
    whole_between(below ? high->whole() : "1", low ? low->whole() : "", &negative);
  }
  if (range.contains({})) negative.push_back("0");
  if (!negative.empty()) texts.push_back("-" + choice(negative));
  return choice(texts);
}

std::string number_pattern(const Range& range) {
  if (!range.bounded()) return std::string("-?") + kWhole + "(?:\\.[0-9]+)?" + kExponent;
  if (range.low && range.low->zero() && !range.low_open && !range.high)
    return std::string("(?:") + kWhole + "(?:\\.[0-9]+)?" + kExponent + "|" + kZero + ")";
  std::vector<std::string> texts;
  if (range.contains({})) texts.push_back(kZero);
  const Decimal zero;
  if (!range.high || compare(*range.high, zero) > 0 || (range.high->zero() && !range.high_open)) {
    const bool inside = range.low && !range.low->negative;
    texts.push_back(positive_pattern(inside ? *range.low : zero, inside && range.low_open,
                                     range.high ? &*range.high : nullptr, range.high_open));
  }
  if (!range.low || range.low->negative) {
    const bool inside = range.high && (range.high->negative || range.high->zero());
    const Decimal from = inside ? range.high->negated() : zero;
    const Decimal to = range.low ? range.low->negated() : zero;
    texts.push_back("-" + positive_pattern(from, !inside || range.high_open || from.zero(), range.low ? &to : nullptr,
                                           range.low_open));
  }
  return choice(texts);
}

std::string fraction_pattern() { return std::string("-?") + kWhole + "\\.[0-9]*[1-9][0-9]*"; }

std::uint64_t whole_divisor(const Decimal& divisor) {
  if (divisor.digits.size() > 6 || divisor.exponent < -18 || divisor.exponent > 6) return 0;
  std::uint64_t number = 0, scale = 1;
  for (const char c : divisor.digits) number = number * 10 + static_cast<std::uint64_t>(c - '0');
  for (std::int32_t i = divisor.exponent; i > 0; i--) number *= 10;
  for (std::int32_t i = divisor.exponent; i < 0; i++) scale *= 10;
  return number / std::gcd(number, scale);
}

std::optional<std::string> multiple_pattern(const Decimal& divisor, bool integers) {
  if (whole_divisor(divisor) == 0) return std::nullopt;
  if (!integers && !divisor.integral()) {
    std::uint64_t number = 0, scale = 1;
    for (const char c : divisor.digits) number = number * 10 + static_cast<std::uint64_t>(c - '0');
    const auto places = static_cast<std::size_t>(-divisor.exponent);
    for (std::size_t i = 0; i < places; i++) scale *= 10;
    if (number == 1) return std::string("-?") + kWhole + "(?:\\.[0-9]{1," + count(places) + "}0*)?";
    if (scale % number != 0 || scale / number > 1000) return std::nullopt;
    return std::string("-?") + kWhole + "(?:\\.0+|\\." + last_digits(number, places, false) + "0*)?";
  }
  const std::uint64_t number = whole_divisor(divisor);
  const std::string end = integers ? "" : "(?:\\.0+)?";
  if (number == 1) return std::string("-?") + kWhole + end;
  std::uint64_t power = 10;
  for (std::size_t width = 1; width <= 6; width++, power *= 10)
    if (power % number == 0 && power / number <= 1000) return "-?" + last_digits(number, width, true) + end;
  return std::nullopt;
}

}  // namespace aici::json_schema
