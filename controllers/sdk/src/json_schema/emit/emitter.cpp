#include "emitter.hpp"

#include <algorithm>
#include <set>

#include "../strings/ecma.hpp"

namespace aici::json_schema {
namespace {

/// Maximum number of copies of an expression in a sequence; for more copies, rules are made.
constexpr std::uint32_t kWrittenOut = 32;
/// Nothing, a space, or a line break with indentation.
constexpr std::string_view kBlanks = "(?: |\\n[ \\t]{0,40})?";

}  // namespace

cfg::Expr Marks::mark(std::size_t number, std::initializer_list<std::string_view> pattern, std::string_view plain) {
  std::optional<cfg::Expr>& made = made_[number];
  if (made) return *made;
  if (whitespace_ != Whitespace::kFlexible) return *(made = grammar_.literal(plain));
  std::string whole, problem;
  for (const std::string_view part : pattern) whole += part;
  bool empty = false;
  return *(made = grammar_.regex(Strings::compile(whole, &empty, &problem)));
}

cfg::Expr Marks::comma() { return mark(0, {",", kBlanks}, whitespace_ == Whitespace::kSpaced ? ", " : ","); }
cfg::Expr Marks::colon() { return mark(1, {": ?"}, whitespace_ == Whitespace::kSpaced ? ": " : ":"); }
cfg::Expr Marks::open_array() { return mark(2, {"\\[", kBlanks}, "["); }
cfg::Expr Marks::close_array() { return mark(3, {kBlanks, "\\]"}, "]"); }
cfg::Expr Marks::empty_array() { return mark(4, {"\\[", kBlanks, "\\]"}, "[]"); }
cfg::Expr Marks::open_object() { return mark(5, {"\\{", kBlanks}, "{"); }
cfg::Expr Marks::close_object() { return mark(6, {kBlanks, "\\}"}, "}"); }
cfg::Expr Marks::empty_object() { return mark(7, {"\\{", kBlanks, "\\}"}, "{}"); }

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
        parts.push_back(grammar_.sequence({grammar_.literal(text), marks_.colon(), literal(member, depth + 1)}));
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

}  // namespace aici::json_schema
