#include "emitter.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace aici::json_schema {

namespace {

/// Maximum number of copies of an expression in a sequence; for more copies, rules are made.
constexpr std::uint32_t kWrittenOut = 32;
/// A space, or a line break with indentation.
constexpr std::string_view kBlanks = "(?: |\\n[ \\t]{0,40})";

}  // namespace

cfg::Expr Marks::blanks() {
  if (whitespace_ != Whitespace::kFlexible) return grammar_.never();
  bool empty = false;
  std::string problem;
  if (!blanks_) blanks_ = grammar_.regex(Strings::compile(kBlanks, &empty, &problem));
  return *blanks_;
}

cfg::Expr Marks::comma() {
  const std::string_view text = whitespace_ == Whitespace::kSpaced ? ", " : ",";
  if (!comma_) comma_ = grammar_.sequence({grammar_.literal(text), grammar_.optional(blanks())});
  return *comma_;
}

cfg::Expr Marks::space() {
  if (space_) return *space_;
  space_ = whitespace_ == Whitespace::kCompact ? grammar_.empty() : grammar_.literal(" ");
  if (whitespace_ == Whitespace::kFlexible) space_ = grammar_.optional(*space_);
  return *space_;
}

cfg::Expr Marks::property(const std::string& name, cfg::Expr value) {
  return grammar_.sequence({grammar_.literal(name + ":"), space(), value});
}

cfg::Expr Marks::property(cfg::Expr name, cfg::Expr value) {
  return grammar_.sequence({name, grammar_.literal(":"), space(), value});
}

cfg::Expr Emitter::run() {
  if (plain_ && !only_strings(expander_.use(expander_.simplify(expander_.whole())))) {
    problems_.wrong(0, "all values must be strings, because they are written without quotes");
    return grammar_.never();
  }
  const Expr whole = value(expander_.whole());
  while (!work_.empty() && !problems_.fatal()) {
    const auto [goal, rule] = std::move(work_.back());
    work_.pop_back();
    grammar_.define(rule, build(expander_.use(goal)));
  }
  return whole;
}

Value Emitter::cause() {
  const std::vector<bool> productive = grammar_.productive();
  const auto impossible = [&](const Goal& goal) {
    const auto known = known_.find(goal);
    return known == known_.end() ? expander_.empty(goal) : !productive[known->second];
  };
  Goal goal = expander_.whole();
  for (std::set<Goal> seen; seen.insert(goal).second;) {
    const std::vector<Branch> branches = expander_.branches(goal);
    if (branches.size() != 1 || branches[0].values) break;
    for (Goal& part : expander_.necessary(branches[0], branches[0].types)) {
      part = expander_.simplify(std::move(part));
      if (part == Goal{kNever} || !impossible(part)) continue;
      goal = std::move(part);
      break;
    }
  }
  return goal.empty() ? 0 : schema_of(goal[0]);
}

bool Emitter::only_strings(const Shape& shape) const {
  bool only = true;
  for (const Value literal : shape.literals) only = only && document_.kind(literal) == Kind::kString;
  for (const Branch& branch : shape.branches) only = only && (branch.types & ~kString) == 0;
  return only;
}

cfg::Expr Emitter::value(Goal goal) {
  goal = expander_.simplify(std::move(goal));
  if (const auto known = known_.find(goal); known != known_.end()) return known->second;
  const Shape& shape = expander_.use(goal);
  bool scalar = true;
  for (const Value literal : shape.literals)
    scalar = scalar && document_.kind(literal) != Kind::kArray && document_.kind(literal) != Kind::kObject;
  for (const Branch& branch : shape.branches) scalar = scalar && !(branch.types & (kArray | kObject));
  Expr expr = grammar_.never();
  if (scalar && shape.literals.size() < 16) {
    expr = build(shape);
  } else {
    const std::string name = goal.empty() ? "any value" : "#" + document_.pointer(schema_of(goal[0]));
    const cfg::Rule rule = grammar_.declare(name);
    expr = grammar_.call(rule);
    work_.emplace_back(goal, rule);
  }
  known_.insert({std::move(goal), expr});
  return expr;
}

cfg::Expr Emitter::build(const Shape& shape) {
  std::vector<Expr> all;
  for (const Value value : shape.literals) all.push_back(literal(value, 0));
  for (const Branch& branch : shape.branches) all.push_back(build(branch));
  return grammar_.choice(all);
}

cfg::Expr Emitter::build(const Branch& branch) {
  std::vector<Expr> all;
  if (branch.types & kNull) all.push_back(grammar_.literal("null"));
  if (branch.types & kFalse) all.push_back(grammar_.literal("false"));
  if (branch.types & kTrue) all.push_back(grammar_.literal("true"));
  if (branch.types & kNumber) all.push_back(if_possible(branch, &Emitter::number));
  if (branch.types & kString) all.push_back(if_possible(branch, &Emitter::string));
  if (branch.types & kArray) all.push_back(if_possible(branch, &Emitter::array));
  if (branch.types & kObject) all.push_back(if_possible(branch, &Emitter::object));
  return grammar_.choice(all);
}

/// With Options::warn, ignores constraints that cannot be enforced, and with them all others that are difficult.
cfg::Expr Emitter::if_possible(const Branch& branch, Expr (Emitter::*build)(const Branch&)) {
  const std::size_t before = problems_.count();
  const Expr expr = (this->*build)(branch);
  if (!warn_ || problems_.count() == before || problems_.fatal()) return expr;
  Branch looser = branch;
  const bool simple = branch.multiples.empty() && branch.not_multiples.empty() && branch.not_numbers.empty();
  looser.multiples.clear(), looser.not_multiples.clear(), looser.not_numbers.clear();
  if (build == &Emitter::number && simple) looser.range = {};
  looser.texts.clear(), looser.not_strings.clear();
  looser.min_length = std::min(looser.min_length, 1000u);
  looser.contains.clear();
  looser.unique = kNone;
  looser.min_properties = 0;
  looser.some.clear();
  return (this->*build)(looser);
}

cfg::Expr Emitter::joined(const std::vector<Expr>& parts, Expr open, Expr close, Expr empty) {
  if (parts.empty()) return empty;
  std::vector<Expr> all{open};
  for (std::size_t i = 0; i < parts.size(); i++) {
    if (i > 0) all.push_back(marks_.comma());
    all.push_back(parts[i]);
  }
  all.push_back(close);
  return grammar_.sequence(all);
}

/// Returns the spelling of a given value. Integers may also be written with `.0`, and 0 with a sign.
cfg::Expr Emitter::literal(Value value, std::uint32_t depth) {
  if (depth == limits_.value_depth) {
    problems_.wrong(value, "this value is nested too deeply");
    return grammar_.never();
  }
  std::string text;
  std::vector<Expr> parts;
  switch (document_.kind(value)) {
    case Kind::kNull: return grammar_.literal("null");
    case Kind::kFalse: return grammar_.literal("false");
    case Kind::kTrue: return grammar_.literal("true");
    case Kind::kNumber: {
      const auto number = Decimal::of(document_.text(value), 40);
      if (!number) return grammar_.literal(document_.text(value));
      text = number->plain();
      if (!number->integral()) return grammar_.literal(text);
      parts = {grammar_.literal(text), grammar_.literal(text + ".0")};
      if (number->zero()) parts.insert(parts.end(), {grammar_.literal("-0"), grammar_.literal("-0.0")});
      return grammar_.choice(parts);
    }
    case Kind::kString:
      if (plain_) return grammar_.literal(document_.text(value));
      append_json_string(document_.text(value), &text);
      return grammar_.literal(text);
    case Kind::kArray:
      for (std::uint32_t i = 0; i < document_.count(value); i++)
        parts.push_back(literal(document_.child(value, i), depth + 1));
      return joined(parts, marks_.open_array(), marks_.close_array(), marks_.empty_array());
    case Kind::kObject:
      for (std::uint32_t i = 0; i < document_.count(value); i++) {
        const Value member = document_.child(value, i);
        text.clear();
        append_json_string(document_.name(member), &text);
        parts.push_back(marks_.property(text, literal(member, depth + 1)));
      }
      return joined(parts, marks_.open_object(), marks_.close_object(), marks_.empty_object());
  }
  return grammar_.never();
}

cfg::Expr Emitter::rule(std::string_view name, Expr body) {
  const cfg::Rule rule = grammar_.declare(name);
  grammar_.define(rule, body);
  return grammar_.call(rule);
}

cfg::Expr Emitter::pattern(const std::string& pattern, Value where) {
  std::string problem;
  if (const std::optional<Expr> expr = pattern_except(pattern, {}, false, &problem)) return *expr;
  problems_.unsupported(where, problem);
  return grammar_.never();
}

cfg::Expr Emitter::exactly(Expr expr, std::uint32_t count) {
  if (count <= kWrittenOut) return grammar_.repeat(expr, count, count);
  const Expr half = rule("repeated", exactly(expr, count / 2));
  return grammar_.sequence({half, half, count % 2 ? expr : grammar_.empty()});
}

cfg::Expr Emitter::at_most(Expr expr, std::uint32_t count) {
  if (count <= kWrittenOut) return grammar_.repeat(expr, 0, count);
  std::uint32_t size = kWrittenOut;
  while (count / size > kWrittenOut) size *= kWrittenOut;
  const Expr many = rule("repeated", exactly(expr, size)), few = rule("repeated", at_most(expr, size - 1));
  Expr all = at_most(expr, count % size);
  for (std::uint32_t i = 0; i < count / size; i++)
    all = rule("repeated", grammar_.choice({few, grammar_.sequence({many, all})}));
  return all;
}

cfg::Expr Emitter::between(Expr expr, std::uint32_t least, std::uint32_t most) {
  if (most == Branch::kNoLimit)
    return least == 0 ? grammar_.star(expr) : grammar_.sequence({exactly(expr, least), grammar_.star(expr)});
  return grammar_.sequence({exactly(expr, least), at_most(expr, most - least)});
}

// Strings and numbers.

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

// Multiples and non-multiples of numbers, by their remainders, digit by digit.

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
  /// Remainders by what they have in common with others: the digits after which the number is a multiple.
  std::map<std::vector<std::uint64_t>, std::uint64_t> known{};

  /// The remainder of a number with digits beyond these places, which is no multiple.
  std::uint64_t none() const { return number; }

  /// Returns one of the remainders that the same digits bring to a multiple: of 86400, 141 instead of 86400. For each
  /// number of digits, until all numbers of so many digits occur, there is one such remainder of them or none; after
  /// that, only the remainder by the part of the number without factors 2 and 5 matters.
  std::uint64_t representative(std::uint64_t rest) {
    std::uint64_t part = number;
    for (const std::uint64_t factor : {2u, 5u})
      while (part % factor == 0) part /= factor;
    std::vector<std::uint64_t> digits{rest % part};
    std::uint64_t power = 1, left = number, scaled = rest;
    for (; left > part; power *= 10, scaled = scaled * 10 % number, left /= std::gcd(left, std::uint64_t{10})) {
      const std::uint64_t missing = (number - scaled) % number;
      digits.push_back(missing < power ? missing : none());
      if (power >= number) break;
    }
    return known.try_emplace(std::move(digits), rest).first->second;
  }

  std::uint64_t next(std::uint64_t rest, std::uint32_t digit, std::uint32_t after_point) {
    if (rest == none()) return rest;
    if (after_point > places) return digit == 0 ? rest : none();
    return representative((rest * 10 + digit) % number);
  }
  bool good(std::uint64_t rest, std::uint32_t after_point) const {
    if (rest == none()) return negated;
    for (std::uint32_t i = after_point; i < places; i++) rest = rest * 10 % number;
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
  out.representative(0);
  return out;
}

/// A position while a number is read.
struct Place {
  regex::Regex::State state;
  std::uint32_t after_point;  ///< number of decimal places plus one; 0 before the point
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
      if (byte == '.') next.after_point = 1;
      if (byte >= '0') {
        for (std::size_t k = 0; k < divisors.size(); k++)
          next.rests[k] = divisors[k].next(next.rests[k], static_cast<std::uint32_t>(byte - '0'), next.after_point);
        if (next.after_point > 0) next.after_point = std::min(next.after_point + 1, most_places + 1);
      }
      out.push_back({byte, add(std::move(next))});
    }
  }
  const auto ends = [&](const Place& place) {
    const std::uint32_t after_point = place.after_point > 0 ? place.after_point - 1 : 0;
    bool good = numbers->accepting(place.state);
    for (std::size_t k = 0; k < divisors.size(); k++) good = good && divisors[k].good(place.rests[k], after_point);
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
