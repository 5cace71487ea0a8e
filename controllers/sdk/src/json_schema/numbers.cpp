#include "branch.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "aici/text.hpp"

namespace aici::json_schema {

namespace {

Decimal normal(bool negative, std::string digits, std::int32_t exponent) {
  const std::size_t first = digits.find_first_not_of('0');
  if (first == std::string::npos) return {};
  const std::size_t last = digits.find_last_not_of('0');
  exponent += static_cast<std::int32_t>(digits.size() - 1 - last);
  return {negative, digits.substr(first, last + 1 - first), exponent};
}

/// Compares two numbers without signs.
int compare_sizes(const Decimal& a, const Decimal& b) {
  const std::int32_t points = static_cast<std::int32_t>(a.digits.size()) + a.exponent -
                              (static_cast<std::int32_t>(b.digits.size()) + b.exponent);
  if (a.zero() || b.zero()) return a.zero() ? (b.zero() ? 0 : -1) : 1;
  if (points != 0) return points < 0 ? -1 : 1;
  const int order = a.digits.compare(b.digits);
  return order < 0 ? -1 : order > 0;
}

/// Adds one to an integer without leading zeros, or subtracts one if it is not 0.
void step(std::string* number, bool up) {
  std::size_t i = number->size();
  while (i > 0 && (*number)[i - 1] == (up ? '9' : '0')) (*number)[--i] = up ? '0' : '9';
  if (i == 0)
    number->insert(number->begin(), '1');
  else
    (*number)[i - 1] = static_cast<char>((*number)[i - 1] + (up ? 1 : -1));
}

}  // namespace

std::optional<Decimal> Decimal::of(std::string_view text, std::uint32_t most) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  std::int32_t exponent = 0;
  if (e < text.size()) {
    std::string_view power = text.substr(e + 1);
    const bool small = power.starts_with('-');
    if (small || power.starts_with('+')) power.remove_prefix(1);
    while (power.size() > 1 && power[0] == '0') power.remove_prefix(1);
    if (power.size() > 6) return std::nullopt;
    for (const char c : power) exponent = exponent * 10 + (c - '0');
    if (small) exponent = -exponent;
  }
  std::string digits;
  for (std::size_t i = 0, point = text.find('.'); i < e; i++) {
    if (text[i] == '.') continue;
    digits += text[i];
    if (i > point) exponent--;
  }
  Decimal found = normal(negative, std::move(digits), exponent);
  const auto size = static_cast<std::int32_t>(found.digits.size()), limit = static_cast<std::int32_t>(most);
  if (size > limit || found.exponent < -limit || size + found.exponent > limit) return std::nullopt;
  return found;
}

Decimal Decimal::of(std::uint64_t number) { return normal(false, std::to_string(number), 0); }

std::string Decimal::whole() const {
  const auto size = static_cast<std::int32_t>(digits.size());
  if (zero() || size + exponent <= 0) return "0";
  std::string out = digits.substr(0, static_cast<std::size_t>(std::min(size, size + exponent)));
  if (exponent > 0) out.append(static_cast<std::size_t>(exponent), '0');
  return out;
}

std::string Decimal::fraction() const {
  if (exponent >= 0) return "";
  const auto size = static_cast<std::int32_t>(digits.size());
  if (size + exponent >= 0) return digits.substr(static_cast<std::size_t>(size + exponent));
  return std::string(static_cast<std::size_t>(-(size + exponent)), '0') + digits;
}

std::string Decimal::plain() const {
  std::string out = negative ? "-" : "";
  out += whole();
  if (exponent < 0) out.append(1, '.').append(fraction());
  return out;
}

Decimal Decimal::negated() const {
  Decimal out = *this;
  out.negative = !zero() && !negative;
  return out;
}

Decimal Decimal::floor() const {
  if (integral()) return *this;
  std::string number = whole();
  if (negative) step(&number, true);
  return normal(negative, std::move(number), 0);
}

Decimal Decimal::plus(int one) const {
  std::string number = whole();
  const bool away = zero() ? true : negative == (one < 0);
  const bool sign = zero() ? one < 0 : negative;
  step(&number, away);
  return normal(sign, std::move(number), 0);
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int sizes = compare_sizes(a, b);
  return a.negative ? -sizes : sizes;
}

/// Divides digit by digit, after both numbers have been scaled to integers.
bool is_multiple(const Decimal& a, const Decimal& b) {
  if (a.zero()) return true;
  const std::int32_t low = std::min(a.exponent, b.exponent);
  const std::string numerator = a.digits + std::string(static_cast<std::size_t>(a.exponent - low), '0');
  const std::string divisor = b.digits + std::string(static_cast<std::size_t>(b.exponent - low), '0');
  std::string rest;
  const auto at_least = [&] {
    return rest.size() != divisor.size() ? rest.size() > divisor.size() : rest >= divisor;
  };
  for (const char digit : numerator) {
    if (!rest.empty() || digit != '0') rest += digit;
    while (at_least()) {
      int borrow = 0;
      for (std::size_t i = 0; i < rest.size(); i++) {
        int d = rest[rest.size() - 1 - i] - '0' - borrow;
        if (i < divisor.size()) d -= divisor[divisor.size() - 1 - i] - '0';
        borrow = d < 0;
        rest[rest.size() - 1 - i] = static_cast<char>('0' + d + (borrow ? 10 : 0));
      }
      const std::size_t first = rest.find_first_not_of('0');
      rest.erase(0, first == std::string::npos ? rest.size() : first);
    }
  }
  return rest.empty();
}

namespace {

constexpr std::size_t kSafeDigits = 15;
/// Digits before the point of a number whose bound has more of them.
constexpr std::int32_t kBoundDigits = 64;
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

namespace {

/// Returns the part of a range that needs an automaton of moderate size: a bound on one side of 0 that only numbers
/// with more digits exceed, such as the greatest double, becomes a bound on the number of digits.
Range moderate(Range range) {
  const Decimal high{false, "1", kBoundDigits}, low = high.negated();
  const bool ends = range.high && compare(*range.high, low) > 0, begins = range.low && compare(*range.low, high) < 0;
  if (range.high && compare(*range.high, high) > 0 && (begins || !range.low)) range.high = high, range.high_open = false;
  if (range.low && compare(*range.low, low) < 0 && (ends || !range.high)) range.low = low, range.low_open = false;
  return range;
}

}  // namespace

std::string integer_pattern(const Range& whole) {
  const Range range = moderate(whole);
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

std::string number_pattern(const Range& whole) {
  const Range range = moderate(whole);
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
