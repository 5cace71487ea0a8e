// Strings and numbers.
#include <algorithm>

#include "../strings/ecma.hpp"
#include "emitter.hpp"

namespace aici::json_schema {
namespace {

constexpr std::size_t kMaxExcluded = 200;

}  // namespace

cfg::Expr Emitter::string(const Branch& branch) {
  using Lengths = Strings::Lengths;
  const Branch::Text* cause = nullptr;
  std::string problem;
  for (const Lengths lengths : {Lengths::kCounted, Lengths::kUpperCounted, Lengths::kWrittenOut}) {
    const std::optional<Strings::Language> language = strings_.language(branch, lengths, &cause, &problem);
    if (!language) break;
    // an assertive pattern examines its surroundings, so the quotes must not be part of it
    const bool quotes_inside = !plain_ && !language->assertive;
    const std::string whole = quotes_inside ? "\"(?:" + language->pattern + ")\"" : language->pattern;
    std::optional<Expr> expr;
    if (language->counted) {
      const std::uint32_t quotes = quotes_inside ? 2 : 0;
      const std::uint32_t most = language->most == kUnlimited ? kUnlimited : language->most + quotes;
      expr = counted_pattern(whole, language->least + quotes, most, &problem);
    } else {
      expr = pattern_except(whole, branch.not_strings, !quotes_inside, &problem);
    }
    if (!expr && language->counted) continue;
    if (!expr) break;
    if (plain_ || quotes_inside) return *expr;
    const Expr quote = grammar_.literal("\"");
    return grammar_.sequence({quote, *expr, quote});
  }
  problems_.unsupported(cause ? cause->where : branch.lengths_at, problem);
  return grammar_.never();
}

/// Returns the texts of a pattern except some, which are given without quotes. Returns nothing if it is too large.
std::optional<cfg::Expr> Emitter::pattern_except(const std::string& pattern, const std::vector<std::string_view>& texts,
                                                 bool unquoted, std::string* problem) {
  std::vector<std::string> except;
  for (const std::string_view text : texts) {
    if (plain_) {
      except.emplace_back(text);
      continue;
    }
    append_json_string(text, &except.emplace_back());
    if (unquoted) except.back() = except.back().substr(1, except.back().size() - 2);
  }
  std::sort(except.begin(), except.end());
  except.erase(std::unique(except.begin(), except.end()), except.end());
  std::string key = pattern;
  for (const std::string& text : except) key.append(1, '\0').append(text);
  if (const auto known = patterns_.find(key); known != patterns_.end()) return known->second;
  bool empty = false;
  const auto shared = regex(pattern, &empty, problem);
  if (shared == nullptr && !empty) return std::nullopt;
  Expr expr = grammar_.never();
  if (shared != nullptr) expr = except.empty() ? grammar_.regex(shared) : grammar_.regex_except(shared, except);
  return patterns_[key] = expr;
}

/// Compiles a pattern once; returns null as Strings::compile returns nothing.
std::shared_ptr<regex::Regex> Emitter::regex(const std::string& pattern, bool* empty, std::string* problem) {
  std::shared_ptr<regex::Regex>& known = regexes_[pattern];
  if (known == nullptr) known = Strings::compile(pattern, empty, problem);
  return known;
}

/// Returns the texts of a pattern with a number of characters between two bounds; nothing if they cannot be counted.
std::optional<cfg::Expr> Emitter::counted_pattern(const std::string& pattern, std::uint32_t least, std::uint32_t most,
                                                  std::string* problem) {
  auto [at, added] = counted_.try_emplace(pattern);
  Countable& known = at->second;
  if (added) {
    const auto shared = regex(pattern, &known.empty, problem);
    if (shared != nullptr) known.texts = cfg::Counted::make(shared, !plain_);
  }
  if (known.empty) return grammar_.never();
  const std::pair lengths{least, most};
  if (const auto made = known.made.find(lengths); made != known.made.end()) return made->second;
  const std::optional<cfg::Counted> counted = known.texts ? known.texts->between(least, most) : std::nullopt;
  if (!counted) {
    *problem = "this pattern cannot be combined with the lengths beside it: it has too many states";
    return std::nullopt;
  }
  return known.made[lengths] = grammar_.counted(*counted);
}

cfg::Expr Emitter::number(const Branch& branch) {
  const bool integers = !(branch.types & kFraction);
  std::vector<Range> ranges{branch.range};
  // an excluded number cuts the range in two
  for (const Decimal& number : branch.not_numbers)
    for (std::size_t i = 0; i < ranges.size(); i++) {
      if (!ranges[i].contains(number) || ranges.size() > kMaxExcluded) continue;
      Range above = ranges[i];
      above.low = number, above.low_open = true;
      ranges[i].high = number, ranges[i].high_open = true;
      if (!above.empty()) ranges.push_back(above);
      break;
    }
  if (ranges.size() > kMaxExcluded) {
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
  if (!(branch.types & kInteger)) spans = both_patterns({spans, fraction_pattern()});
  if (!branch.not_multiples.empty()) return multiples(branch, spans);
  // patterns of multiples do not distinguish types
  if (bounded || branch.multiples.empty() || (branch.types & kNumber) != kNumber) all.push_back(spans);
  for (const Decimal& divisor : branch.multiples) {
    const std::optional<std::string> multiple = multiple_pattern(divisor, integers);
    if (!multiple) return multiples(branch, spans);
    all.push_back(*multiple);
  }
  return pattern(both_patterns(all), branch.numbers_at);
}

}  // namespace aici::json_schema
