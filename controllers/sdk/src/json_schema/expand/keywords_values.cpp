// Keywords about single values: types, values, numbers, strings.
#include <algorithm>

#include "../strings/formats.hpp"
#include "expander.hpp"

namespace aici::json_schema {

std::optional<Types> Expander::types(Value keyword) {
  static constexpr std::pair<std::string_view, Types> kNames[] = {
      {"array", kArray},     {"boolean", kFalse | kTrue}, {"integer", kInteger}, {"null", kNull},
      {"number", kNumber},   {"object", kObject},         {"string", kString},
  };
  Types found = 0;
  const auto add = [&](Value name) {
    for (const auto& [known, types] : kNames)
      if (document_.is(name, Kind::kString) && document_.text(name) == known) return found |= types, true;
    problems_.wrong(name, "one of null, boolean, integer, number, string, array, object is expected");
    return false;
  };
  if (!document_.is(keyword, Kind::kArray)) return add(keyword) ? std::optional(found) : std::nullopt;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++)
    if (!add(document_.child(keyword, i))) return std::nullopt;
  return found;
}

void Expander::type(Value, Value keyword, Branches& branches) {
  if (const std::optional<Types> found = types(keyword)) each(branches, [&](Branch& b) { b.types &= *found; });
}

void Expander::not_type(Value, Value keyword, Branches& branches) {
  if (const std::optional<Types> found = types(keyword))
    each(branches, [&](Branch& b) { b.types &= static_cast<Types>(~*found); });
}

void Expander::keep_values(const std::vector<Value>& values, Branches& branches) {
  ValueSet kept(document_);
  for (const Value value : values) kept.add(value);
  each(branches, [&](Branch& b) {
    if (!b.values)
      b.values = values;
    else
      std::erase_if(*b.values, [&](Value known) { return !kept.contains(known); });
  });
}

void Expander::enumeration(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of values is expected")) return;
  std::vector<Value> values;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) values.push_back(document_.child(keyword, i));
  keep_values(values, branches);
}

void Expander::not_enumeration(Value, Value keyword, Branches& branches) {
  if (!is_list(keyword, "a list of values is expected")) return;
  for (std::uint32_t i = 0; i < document_.count(keyword); i++) drop_value(document_.child(keyword, i), branches);
}

void Expander::constant(Value, Value keyword, Branches& branches) { keep_values({keyword}, branches); }

void Expander::not_constant(Value, Value keyword, Branches& branches) { drop_value(keyword, branches); }

void Expander::drop_value(Value value, Branches& branches) {
  // Listed values are compared with the whole goal at the end.
  switch (document_.kind(value)) {
    case Kind::kNull: return each(branches, [](Branch& b) { b.types &= static_cast<Types>(~kNull); });
    case Kind::kFalse: return each(branches, [](Branch& b) { b.types &= static_cast<Types>(~kFalse); });
    case Kind::kTrue: return each(branches, [](Branch& b) { b.types &= static_cast<Types>(~kTrue); });
    case Kind::kNumber:
      if (const std::optional<Decimal> found = number(value))
        for (Branch& b : branches) b.not_numbers.push_back(*found), b.numbers_at = value;
      return;
    case Kind::kString:
      for (Branch& b : branches) b.not_strings.push_back(document_.text(value));
      return;
    case Kind::kArray:
      if (document_.count(value) == 0)
        return each(branches, [](Branch& b) { b.min_items = std::max(b.min_items, 1u); });
      return problem(branches, kArray, value, "the negation of an array cannot be enforced");
    case Kind::kObject:
      if (document_.count(value) == 0)
        return each(branches, [](Branch& b) { b.min_properties = std::max(b.min_properties, 1u); });
      return problem(branches, kObject, value, "the negation of an object cannot be enforced");
  }
}

void Expander::low(Value keyword, bool open, Branches& branches) {
  const std::optional<Decimal> bound = number(keyword);
  if (bound) each(branches, [&](Branch& b) { b.raise(*bound, open), b.numbers_at = keyword; });
}

void Expander::high(Value keyword, bool open, Branches& branches) {
  const std::optional<Decimal> bound = number(keyword);
  if (bound) each(branches, [&](Branch& b) { b.lower(*bound, open), b.numbers_at = keyword; });
}

namespace {

void only(std::vector<Branch>& branches, Types types) {
  for (Branch& b : branches) b.types &= types;
}

}  // namespace

void Expander::minimum(Value schema, Value keyword, Branches& branches) {
  low(keyword, document_.is(document_.find(schema, "exclusiveMinimum"), Kind::kTrue), branches);
}
void Expander::not_minimum(Value schema, Value keyword, Branches& branches) {
  only(branches, kNumber);
  high(keyword, !document_.is(document_.find(schema, "exclusiveMinimum"), Kind::kTrue), branches);
}
void Expander::maximum(Value schema, Value keyword, Branches& branches) {
  high(keyword, document_.is(document_.find(schema, "exclusiveMaximum"), Kind::kTrue), branches);
}
void Expander::not_maximum(Value schema, Value keyword, Branches& branches) {
  only(branches, kNumber);
  low(keyword, !document_.is(document_.find(schema, "exclusiveMaximum"), Kind::kTrue), branches);
}
// In draft 4 this keyword is true or false, and applies to the bound next to it.
void Expander::exclusive_minimum(Value, Value keyword, Branches& branches) {
  if (document_.kind(keyword) != Kind::kTrue && document_.kind(keyword) != Kind::kFalse)
    low(keyword, true, branches);
}
void Expander::not_exclusive_minimum(Value, Value keyword, Branches& branches) {
  if (!document_.is(keyword, Kind::kNumber)) return branches.clear();
  only(branches, kNumber);
  high(keyword, false, branches);
}
void Expander::exclusive_maximum(Value, Value keyword, Branches& branches) {
  if (document_.kind(keyword) != Kind::kTrue && document_.kind(keyword) != Kind::kFalse)
    high(keyword, true, branches);
}
void Expander::not_exclusive_maximum(Value, Value keyword, Branches& branches) {
  if (!document_.is(keyword, Kind::kNumber)) return branches.clear();
  only(branches, kNumber);
  low(keyword, false, branches);
}

void Expander::multiple_of(Value, Value keyword, Branches& branches) {
  const std::optional<Decimal> divisor = number(keyword);
  if (!divisor) return;
  if (divisor->zero() || divisor->negative) return problems_.wrong(keyword, "a number above 0 is expected");
  for (Branch& b : branches) {
    if (std::find(b.multiples.begin(), b.multiples.end(), *divisor) != b.multiples.end()) continue;
    b.multiples.push_back(*divisor);
    b.numbers_at = keyword;
    if (divisor->integral()) b.types &= static_cast<Types>(~kFraction);
  }
  prune(branches);
}

void Expander::not_multiple_of(Value, Value keyword, Branches& branches) {
  only(branches, kNumber);
  prune(branches);
  const std::optional<Decimal> divisor = number(keyword);
  if (!divisor) return;
  if (divisor->zero() || divisor->negative) return problems_.wrong(keyword, "a number above 0 is expected");
  for (Branch& b : branches) b.not_multiples.push_back(*divisor), b.numbers_at = keyword;
}

void Expander::min_length(Value, Value keyword, Branches& branches) {
  if (const auto least = count(keyword))
    each(branches, [&](Branch& b) { b.min_length = std::max(b.min_length, *least), b.lengths_at = keyword; });
}
void Expander::not_min_length(Value, Value keyword, Branches& branches) {
  only(branches, kString);
  const auto least = count(keyword);
  if (least && *least == 0) return branches.clear();
  if (least) each(branches, [&](Branch& b) { b.max_length = std::min(b.max_length, *least - 1); });
}
void Expander::max_length(Value, Value keyword, Branches& branches) {
  if (const auto most = count(keyword))
    each(branches, [&](Branch& b) { b.max_length = std::min(b.max_length, *most), b.lengths_at = keyword; });
}
void Expander::not_max_length(Value, Value keyword, Branches& branches) {
  only(branches, kString);
  if (const auto most = count(keyword))
    each(branches, [&](Branch& b) { b.min_length = std::max(b.min_length, *most + 1); });
}

void Expander::add_text(Value keyword, bool format, bool negated, Branches& branches) {
  if (!document_.is(keyword, Kind::kString)) return problems_.wrong(keyword, "a text is expected");
  if (negated) only(branches, kString);
  prune(branches);
  const Pattern& pattern = strings_.read(document_.text(keyword), format);
  if (!pattern.problem.empty()) return problem(branches, kString, keyword, pattern.problem.c_str());
  if (format && pattern.text.empty()) {
    if (negated) branches.clear();
    return;
  }
  for (Branch& b : branches) {
    // the negation of a format is a problem, but no text meets both
    for (const Branch::Problem& problem : b.problems)
      if (format && document_.name(problem.where) == "format" && problem.rare &&
          document_.text(problem.where) == document_.text(keyword))
        b.types &= static_cast<Types>(~kString);
    b.texts.push_back({document_.text(keyword), keyword, format, negated});
  }
  prune(branches);
}

void Expander::pattern(Value, Value keyword, Branches& branches) { add_text(keyword, false, false, branches); }
void Expander::not_pattern(Value, Value keyword, Branches& branches) { add_text(keyword, false, true, branches); }
void Expander::format(Value, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kString) && strings_.ignores_format(document_.text(keyword)))
    return problems_.remark(keyword, "this format is not known, so it is ignored");
  const Format* format = document_.is(keyword, Kind::kString) ? find_format(document_.text(keyword)) : nullptr;
  if (!format || !format->of_integers()) return add_text(keyword, true, false, branches);
  const auto low = Decimal::of(format->low, limits_.number_digits), high = Decimal::of(format->high, limits_.number_digits);
  each(branches, [&](Branch& b) {
    b.types &= static_cast<Types>(~kFraction);
    b.raise(*low, false), b.lower(*high, false);
    b.numbers_at = keyword;
  });
}
// a text that does not match our pattern may still be of the format, since our patterns are stricter
void Expander::not_format(Value, Value keyword, Branches& branches) {
  if (document_.is(keyword, Kind::kString) && strings_.ignores_format(document_.text(keyword))) return branches.clear();
  const Format* format = document_.is(keyword, Kind::kString) ? find_format(document_.text(keyword)) : nullptr;
  if (format && format->of_integers()) {
    only(branches, kNumber);
    return problem(branches, kNumber, keyword, "the negation of a number's format cannot be enforced");
  }
  if (format && format->pattern.empty()) return branches.clear();
  only(branches, kString);
  for (Branch& b : branches)
    for (const Branch::Text& text : b.texts)
      if (text.format && !text.negated && text.text == document_.text(keyword)) b.types = 0;
  prune(branches);
  problem(branches, kString, keyword, "the negation of a text's format cannot be enforced", true);
}

void Expander::content(Value, Value keyword, Branches& branches) {
  problem(branches, kString, keyword, "the encoding of a text cannot be enforced");
}
void Expander::not_content(Value schema, Value keyword, Branches& branches) {
  only(branches, kString);
  content(schema, keyword, branches);
}

}  // namespace aici::json_schema
