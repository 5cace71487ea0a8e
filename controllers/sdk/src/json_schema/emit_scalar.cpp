// Strings and numbers.
#include <algorithm>
#include <numeric>

#include "ecma.hpp"
#include "emitter.hpp"

namespace aici::json_schema {
namespace {

constexpr std::uint32_t kPiece = 500, kMostLong = 1'000'000;
constexpr std::uint64_t kMostRemainders = 400;
constexpr std::size_t kMostListed = 2000, kMostExcluded = 200;

}  // namespace

cfg::Expr Emitter::string(const Branch& branch) {
  const Branch::Text* cause = nullptr;
  std::string problem;
  const std::optional<Strings::Language> language = strings_.language(branch, &cause, &problem);
  if (!language) {
    problems_.unsupported(cause ? cause->where : branch.lengths_at, problem);
    return grammar_.never();
  }
  if (language->long_text) return long_string(branch);
  std::vector<std::string> except;
  for (const std::string_view text : branch.not_strings) {
    append_json_string(text, &except.emplace_back());
    if (language->assertive) except.back() = except.back().substr(1, except.back().size() - 2);
  }
  const std::string whole = language->assertive ? language->pattern : "\"(?:" + language->pattern + ")\"";
  const Expr quote = grammar_.literal("\"");
  Expr expr = grammar_.never();
  if (language->most != kUnlimited) {
    const std::uint32_t quotes = language->assertive ? 0 : 2;
    expr = pattern_at_most(whole, language->most + quotes, cause ? cause->where : branch.lengths_at);
  } else if (except.empty()) {
    expr = pattern(whole, cause ? cause->where : branch.lengths_at);
  } else {
    std::sort(except.begin(), except.end());
    except.erase(std::unique(except.begin(), except.end()), except.end());
    std::string key = whole;
    for (const std::string& text : except) key.append(1, '\0').append(text);
    const auto [known, added] = patterns_.insert({key, expr});
    if (added) {
      bool empty = false;
      auto compiled = Strings::compile(whole, &empty, &problem);
      if (compiled) known->second = grammar_.regex_except(std::move(*compiled), except);
      if (!compiled && !empty) problems_.unsupported(cause ? cause->where : branch.lengths_at, problem);
    }
    expr = known->second;
  }
  return language->assertive ? grammar_.sequence({quote, expr, quote}) : expr;
}

/// A length beyond what one pattern can count: in pieces.
cfg::Expr Emitter::long_string(const Branch& branch) {
  if (!branch.not_strings.empty()) {
    problems_.unsupported(branch.lengths_at, "so large a maxLength cannot be combined with texts that are excluded");
    return grammar_.never();
  }
  const auto run = [&](std::uint32_t least, std::uint32_t most) {
    return pattern(kCharacter + "{" + std::to_string(least) + "," + std::to_string(most) + "}", branch.lengths_at);
  };
  const std::uint32_t room = std::min(branch.max_length, kMostLong) - std::min(branch.min_length, kMostLong);
  Expr all = run(0, room % kPiece);
  const Expr piece = run(kPiece, kPiece), less = run(0, kPiece - 1);
  for (std::uint32_t i = 0; i < room / kPiece; i++)
    all = rule("text", grammar_.choice({less, grammar_.sequence({piece, all})}));
  const Expr quote = grammar_.literal("\"");
  return grammar_.sequence({quote, run(branch.min_length, branch.min_length), all, quote});
}

cfg::Expr Emitter::number(const Branch& branch) {
  const bool integers = !(branch.types & kFraction);
  std::vector<Range> ranges{branch.range};
  // a number that is excluded cuts the range in two
  for (const Decimal& number : branch.not_numbers)
    for (std::size_t i = 0; i < ranges.size(); i++) {
      if (!ranges[i].contains(number) || ranges.size() > kMostExcluded) continue;
      Range above = ranges[i];
      above.low = number, above.low_open = true;
      ranges[i].high = number, ranges[i].high_open = true;
      if (!above.empty()) ranges.push_back(above);
      break;
    }
  if (ranges.size() > kMostExcluded) {
    problems_.unsupported(branch.numbers_at, "too many numbers are excluded");
    return grammar_.never();
  }
  std::vector<std::string> all;
  std::string spans;
  const bool bounded = ranges.size() > 1 || ranges[0].bounded();
  for (const Range& range : ranges)
    if (!range.empty())
      spans.append(spans.empty() ? "(?:" : "|").append(integers ? integer_pattern(range) : number_pattern(range));
  if (spans.empty()) return grammar_.never();
  spans += ")";
  if (bounded || branch.multiples.empty()) all.push_back(spans);
  for (const Decimal& divisor : branch.multiples) {
    const std::optional<std::string> multiple = multiple_pattern(divisor, integers);
    if (!multiple) return bounded || !integers ? listed_multiples(branch, ranges) : remainders(branch);
    all.push_back(*multiple);
  }
  if (!(branch.types & kInteger)) all.push_back(fraction_pattern());
  return pattern(both_patterns(all), branch.numbers_at);
}

/// Few enough integers are written one by one.
cfg::Expr Emitter::listed_multiples(const Branch& branch, const std::vector<Range>& ranges) {
  std::vector<Expr> found;
  std::size_t looked_at = 0;
  for (const Range& range : ranges) {
    if (range.empty()) continue;
    if (!range.low || !range.high || (branch.types & kFraction) || looked_at > kMostListed) {
      problems_.unsupported(branch.numbers_at, "multipleOf: multiples of this number cannot be enforced here");
      return grammar_.never();
    }
    for (Decimal at = range.low->ceiling(); compare(at, *range.high) <= 0; at = at.plus(1)) {
      if (looked_at > kMostListed) break;
      looked_at++;
      if (range.contains(at) && std::all_of(branch.multiples.begin(), branch.multiples.end(),
                                            [&](const Decimal& divisor) { return is_multiple(at, divisor); }))
        found.push_back(grammar_.literal(at.plain()));
    }
  }
  if (looked_at <= kMostListed) return grammar_.choice(found);
  problems_.unsupported(branch.numbers_at,
                        "multipleOf: multiples of this number cannot be enforced between so distant bounds");
  return grammar_.never();
}

/// Integers by their remainder: a rule for each.
cfg::Expr Emitter::remainders(const Branch& branch) {
  std::uint64_t divisor = 1;
  for (const Decimal& number : branch.multiples) {
    const std::uint64_t one = whole_divisor(number);
    divisor = one == 0 || divisor == 0 || one > kMostRemainders ? 0 : std::lcm(divisor, one);
    if (divisor > kMostRemainders) divisor = 0;
  }
  if (divisor == 0) {
    problems_.unsupported(branch.numbers_at, "multipleOf: multiples of so large a number cannot be enforced");
    return grammar_.never();
  }
  std::vector<cfg::Rule> rules;
  for (std::uint64_t i = 0; i < divisor; i++) rules.push_back(grammar_.declare("digits"));
  std::vector<Expr> first;
  for (std::uint64_t i = 0; i < divisor; i++) {
    std::vector<Expr> next;
    for (std::uint32_t digit = 0; digit < 10; digit++) {
      const char text = static_cast<char>('0' + digit);
      const Expr more =
          grammar_.sequence({grammar_.literal({&text, 1}), grammar_.call(rules[(i * 10 + digit) % divisor])});
      next.push_back(more);
      if (i == 0 && digit > 0) first.push_back(more);
    }
    if (i == 0) next.push_back(grammar_.empty());
    grammar_.define(rules[i], grammar_.choice(next));
  }
  first.push_back(grammar_.literal("0"));
  return grammar_.sequence({grammar_.optional(grammar_.literal("-")), grammar_.choice(first)});
}

}  // namespace aici::json_schema
