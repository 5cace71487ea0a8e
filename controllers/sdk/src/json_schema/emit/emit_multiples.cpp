// Multiples and non-multiples of numbers, by their remainders, digit by digit.
#include <algorithm>

#include "emitter.hpp"

namespace aici::json_schema {
namespace {

/// Maximum number of a divisor's digits, and of its decimal places: a remainder times ten plus a digit must fit.
constexpr std::size_t kMaxDigits = 17;
constexpr std::size_t kMaxPlaces = 17;
/// Maximum number of rules, one for each combination of a place in the pattern and remainders.
constexpr std::size_t kMaxRules = 5000;

/// Computes the remainder of the digits so far, without the point.
struct Divisor {
  std::uint64_t number;
  std::uint32_t places;  ///< the divisor is number / 10^places
  bool negated;

  /// The remainder of a number with digits beyond these places, which is no multiple.
  std::uint64_t none() const { return number; }

  std::uint64_t next(std::uint64_t rest, std::uint32_t digit, std::uint32_t behind_point) const {
    if (rest == none()) return rest;
    if (behind_point > places) return digit == 0 ? rest : none();
    return (rest * 10 + digit) % number;
  }
  bool good(std::uint64_t rest, std::uint32_t behind_point) const {
    if (rest == none()) return negated;
    for (std::uint32_t i = behind_point; i < places; i++) rest = rest * 10 % number;
    return (rest == 0) != negated;
  }
};

std::optional<Divisor> divisor_of(const Decimal& decimal, bool negated) {
  const std::size_t zeros = decimal.exponent > 0 ? static_cast<std::size_t>(decimal.exponent) : 0;
  const std::size_t places = decimal.exponent < 0 ? static_cast<std::size_t>(-decimal.exponent) : 0;
  if (decimal.digits.size() + zeros > kMaxDigits || places > kMaxPlaces) return std::nullopt;
  Divisor out{0, static_cast<std::uint32_t>(places), negated};
  for (const char c : decimal.digits + std::string(zeros, '0'))
    out.number = out.number * 10 + static_cast<std::uint64_t>(c - '0');
  return out;
}

/// A position while a number is read.
struct Place {
  regex::Regex::State state;
  std::uint32_t behind_point;  ///< number of decimal places plus one; 0 before the point
  std::vector<std::uint64_t> rests;

  auto operator<=>(const Place&) const = default;
};

}  // namespace

/// Returns the texts of a pattern of numbers that are multiples of all divisors, and of no excluded divisor.
cfg::Expr Emitter::multiples(const Branch& branch, const std::string& pattern) {
  const auto too_large = [&] {
    problems_.unsupported(branch.numbers_at, "multiples of this number cannot be enforced: there are too many remainders");
    return grammar_.never();
  };
  std::vector<Divisor> divisors;
  for (const auto& [list, negated] : {std::pair{&branch.multiples, false}, {&branch.not_multiples, true}})
    for (const Decimal& decimal : *list) {
      const std::optional<Divisor> divisor = divisor_of(decimal, negated);
      if (!divisor) return too_large();
      divisors.push_back(*divisor);
    }
  std::uint32_t most_places = 0;
  for (const Divisor& divisor : divisors) most_places = std::max(most_places, divisor.places);
  bool empty = false;
  std::string problem;
  const std::shared_ptr<regex::Regex> numbers = Strings::compile(pattern, &empty, &problem);
  if (!numbers) return empty ? grammar_.never() : too_large();

  std::map<Place, std::uint32_t> known;
  std::vector<const Place*> places;
  struct Step {
    char byte;
    std::uint32_t to;
  };
  std::vector<std::vector<Step>> steps;
  const auto add = [&](Place place) {
    const auto [found, added] = known.try_emplace(std::move(place), static_cast<std::uint32_t>(places.size()));
    if (added) places.push_back(&found->first);
    return found->second;
  };
  add({numbers->initial(), 0, std::vector<std::uint64_t>(divisors.size())});
  for (std::size_t i = 0; i < places.size(); i++) {
    if (places.size() > kMaxRules) return too_large();
    std::vector<Step>& out = steps.emplace_back();
    for (const char byte : std::string_view("-.0123456789")) {
      Place next = *places[i];
      next.state = numbers->append(next.state, static_cast<std::uint8_t>(byte));
      if (numbers->dead(next.state)) continue;
      if (byte == '.') next.behind_point = 1;
      if (byte >= '0') {
        for (std::size_t k = 0; k < divisors.size(); k++)
          next.rests[k] = divisors[k].next(next.rests[k], static_cast<std::uint32_t>(byte - '0'), next.behind_point);
        if (next.behind_point > 0) next.behind_point = std::min(next.behind_point + 1, most_places + 1);
      }
      out.push_back({byte, add(std::move(next))});
    }
  }
  const auto ends = [&](const Place& place) {
    const std::uint32_t behind_point = place.behind_point > 0 ? place.behind_point - 1 : 0;
    bool good = numbers->accepting(place.state);
    for (std::size_t k = 0; k < divisors.size(); k++) good = good && divisors[k].good(place.rests[k], behind_point);
    return good;
  };
  if (std::none_of(places.begin(), places.end(), [&](const Place* place) { return ends(*place); }))
    return grammar_.never();
  std::vector<cfg::Rule> rules;
  for (std::size_t i = 0; i < places.size(); i++) rules.push_back(grammar_.declare("digits"));
  for (std::size_t i = 0; i < places.size(); i++) {
    std::vector<Expr> all;
    if (ends(*places[i])) all.push_back(grammar_.empty());
    for (const Step& step : steps[i])
      all.push_back(grammar_.sequence({grammar_.literal({&step.byte, 1}), grammar_.call(rules[step.to])}));
    grammar_.define(rules[i], grammar_.choice(all));
  }
  return grammar_.call(rules[0]);
}

}  // namespace aici::json_schema
