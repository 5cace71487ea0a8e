#include "decimal.hpp"

#include <algorithm>

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

}  // namespace aici::json_schema
