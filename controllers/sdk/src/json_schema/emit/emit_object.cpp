// Objects: the named properties in the order of the schema, then other properties.
#include <algorithm>
#include <set>

#include "emitter.hpp"

namespace aici::json_schema {
namespace {

/// Maximum number of kinds of other names, which are distinguished by the patterns that they match.
constexpr std::size_t kMostSorts = 64;
/// After this many members, the rest gets its own rule. Any member may be the first one, and for each of them the
/// members after it are written out up to the end of the rule.
constexpr std::size_t kShared = 64;

}  // namespace

/// Returns whether propertyNames allows the name.
bool Emitter::may_be_named(const Branch& branch, std::string_view name) {
  if (branch.names.empty()) return true;
  const Shape& shape = expander_.use(expander_.simplify(branch.names));
  for (const Value value : shape.literals)
    if (document_.is(value, Kind::kString) && document_.text(value) == name) return true;
  const std::uint32_t size = length(name);
  for (const Branch& names : shape.branches) {
    if (!(names.types & kString) || size < names.min_length || size > names.max_length) continue;
    bool good = std::find(names.not_strings.begin(), names.not_strings.end(), name) == names.not_strings.end();
    for (const Branch::Text& text : names.texts)
      good = good && strings_.matches(text.text, text.format, name).value_or(text.negated) != text.negated;
    if (good) return true;
  }
  return false;
}

/// Lists the named properties; returns false if a required property is impossible.
bool Emitter::members(const Branch& branch, std::vector<std::string_view>* names, std::vector<Member>* out) {
  std::vector<std::string_view> order;
  std::set<std::string_view> seen;
  const auto add = [&](std::string_view name) {
    if (seen.insert(name).second) order.push_back(name);
  };
  for (const Branch::Property& property : branch.properties) add(property.name);
  for (const std::string_view name : branch.required) add(name);
  const PropertyIndex own = index_properties(branch);
  const std::set<std::string_view> needed(branch.required.begin(), branch.required.end());
  for (const std::string_view name : order) {
    names->push_back(name);
    const bool required = needed.contains(name);
    const Goal goal = expander_.property_goal(branch, own, name);
    const bool never = goal.size() == 1 && goal[0] == kNever;
    const Expr inside = never || !may_be_named(branch, name) ? grammar_.never() : value(goal);
    if (inside == grammar_.never()) {
      if (required) return false;
      continue;
    }
    std::string key;
    append_json_string(name, &key);
    out->push_back({grammar_.sequence({grammar_.literal(key), marks_.colon(), inside}), required});
  }
  return true;
}

/// Returns the names that match `like` (a branch for strings), that propertyNames allows, and that are not in `names`.
cfg::Expr Emitter::keys(const Branch& like, const Branch& branch, const std::vector<std::string_view>& names) {
  Branch wanted = like;
  wanted.not_strings = names;
  if (branch.names.empty()) return string(wanted);
  const Shape& shape = expander_.use(expander_.simplify(branch.names));
  std::vector<Expr> all;
  for (const Value value : shape.literals) {
    if (!document_.is(value, Kind::kString)) continue;
    const std::string_view name = document_.text(value);
    bool good = std::find(names.begin(), names.end(), name) == names.end();
    for (const Branch::Text& text : like.texts)
      good = good && strings_.matches(text.text, text.format, name).value_or(text.negated) != text.negated;
    if (good) all.push_back(literal(value, 0));
  }
  for (Branch one : shape.branches) {
    if (!(one.types & kString)) continue;
    one.texts.insert(one.texts.end(), like.texts.begin(), like.texts.end());
    one.not_strings.insert(one.not_strings.end(), names.begin(), names.end());
    all.push_back(string(one));
  }
  return grammar_.choice(all);
}

/// Returns any property that is not named. Names are sorted by the patterns that they match; each kind has its values.
cfg::Expr Emitter::free_members(const Branch& branch, const std::vector<std::string_view>& names) {
  std::vector<std::pair<std::string_view, Value>> patterns;
  const auto add = [&](std::string_view pattern, Value where) {
    for (const auto& [known, place] : patterns)
      if (known == pattern) return;
    patterns.emplace_back(pattern, where);
  };
  for (const Branch::Property& pattern : branch.patterns) add(pattern.name, schema_of(pattern.schema));
  for (const Branch::Additional& rest : branch.additional)
    for (const std::string_view pattern : rest.known->patterns) add(pattern, schema_of(rest.schema));

  std::vector<std::vector<bool>> sorts{{}};
  for (std::size_t i = 0; i < patterns.size(); i++) {
    std::vector<std::vector<bool>> next;
    for (const std::vector<bool>& sort : sorts)
      for (const bool matches : {false, true}) {
        next.push_back(sort);
        next.back().push_back(matches);
        if (!matches || std::count(sort.begin(), sort.end(), true) == 0) continue;
        // often no name matches both of two patterns
        Branch both;
        for (std::size_t k = 0; k <= i; k++)
          if (next.back()[k]) both.texts.push_back({patterns[k].first, patterns[k].second, false, false});
        const Branch::Text* cause = nullptr;
        std::string problem;
        bool empty = false;
        const auto language = strings_.language(both, Strings::Lengths::kWrittenOut, &cause, &problem);
        if (language && !Strings::compile(language->pattern, &empty, &problem) && empty) next.pop_back();
      }
    sorts = std::move(next);
    if (sorts.size() > kMostSorts) {
      problems_.unsupported(patterns[i].second, "too many patterns for names overlap");
      return grammar_.never();
    }
  }
  std::vector<Expr> all;
  for (const std::vector<bool>& sort : sorts) {
    Goal goal;
    Branch like;
    for (std::size_t i = 0; i < patterns.size(); i++) {
      like.texts.push_back({patterns[i].first, patterns[i].second, false, !sort[i]});
      for (const Branch::Property& pattern : branch.patterns)
        if (sort[i] && pattern.name == patterns[i].first) goal.push_back(pattern.schema);
    }
    for (const Branch::Additional& rest : branch.additional) {
      bool known = false;
      for (std::size_t i = 0; i < patterns.size(); i++)
        known = known || (sort[i] && std::find(rest.known->patterns.begin(), rest.known->patterns.end(),
                                               patterns[i].first) != rest.known->patterns.end());
      if (!known) goal.push_back(rest.schema);
    }
    const Expr inside = value(goal);
    if (inside == grammar_.never()) continue;
    const Expr key = keys(like, branch, names);
    if (key != grammar_.never()) all.push_back(grammar_.sequence({key, marks_.colon(), inside}));
  }
  return grammar_.choice(all);
}

cfg::Expr Emitter::object(const Branch& branch) {
  std::vector<std::string_view> names;
  std::vector<Member> members;
  if (!this->members(branch, &names, &members)) return grammar_.never();
  // names that a schema lists without describing their values are not free either
  std::set<std::string_view> seen(names.begin(), names.end());
  for (const Branch::Additional& rest : branch.additional)
    for (const std::string_view name : rest.known->names)
      if (seen.insert(name).second) names.push_back(name);
  const Expr free = branch.max_properties > 0 ? free_members(branch, names) : grammar_.never();
  const auto required = static_cast<std::uint32_t>(
      std::count_if(members.begin(), members.end(), [](const Member& member) { return member.required; }));
  const bool none = required == 0 && branch.min_properties == 0;
  const bool enough = branch.min_properties <= required;
  const bool roomy = free == grammar_.never() ? branch.max_properties >= members.size()
                                              : branch.max_properties == Branch::kNoLimit;
  std::vector<Expr> all;
  if (none) all.push_back(marks_.empty_object());
  const Expr body = enough && roomy ? uncounted(members, free) : counted(branch, members, free);
  if (body != grammar_.never())
    all.push_back(grammar_.sequence({marks_.open_object(), body, marks_.close_object()}));
  return grammar_.choice(all);
}

/// Returns one or more members with commas between them. Members before the first required member are followed by a
/// comma, and members after it are preceded by one. If no member is required, any member can be the first.
cfg::Expr Emitter::uncounted(const std::vector<Member>& members, Expr free) {
  const bool has_free = free != grammar_.never();
  const Expr more_free =
      has_free ? rule("properties", grammar_.star(grammar_.sequence({marks_.comma(), free}))) : grammar_.empty();
  std::size_t pivot = 0;
  while (pivot < members.size() && !members[pivot].required) pivot++;
  const bool any_first = pivot == members.size();
  Expr tail = more_free;
  std::vector<Expr> firsts;
  if (has_free && any_first) firsts.push_back(grammar_.sequence({free, more_free}));
  for (std::size_t i = members.size(); i-- > (any_first ? 0 : pivot + 1);) {
    if (any_first) firsts.push_back(grammar_.sequence({members[i].expr, tail}));
    const Expr with = grammar_.sequence({marks_.comma(), members[i].expr});
    tail = grammar_.sequence({members[i].required ? with : grammar_.optional(with), tail});
    if (i % kShared == 0 && i > 0) tail = rule("properties", tail);
  }
  if (any_first) return grammar_.choice(firsts);
  Expr all = grammar_.sequence({members[pivot].expr, tail});
  for (std::size_t i = pivot; i-- > 0;)
    all = grammar_.sequence({grammar_.optional(grammar_.sequence({members[i].expr, marks_.comma()})), all});
  return all;
}

/// Counts members: one rule for each pair of the next member's number and the count so far. At most one unnamed
/// property counts for the minimum, since several might have the same name.
cfg::Expr Emitter::counted(const Branch& branch, const std::vector<Member>& members, Expr free) {
  const bool has_free = free != grammar_.never();
  const auto size = static_cast<std::uint32_t>(members.size());
  const std::uint32_t least = branch.min_properties, most = branch.max_properties;
  if (least > size + (has_free ? 1 : 0)) {
    if (has_free && branch.min_properties_at != kNone)
      problems_.unsupported(branch.min_properties_at,
                            "more than one property without a name in the schema cannot be required");
    return grammar_.never();
  }
  const std::uint32_t top = most == Branch::kNoLimit ? least : std::min(most, size);
  if ((size + 1ull) * (top + 1ull) > limits_.counted_states) {
    problems_.unsupported(branch.min_properties_at == kNone ? 0 : branch.min_properties_at,
                          "too many properties would have to be counted");
    return grammar_.never();
  }
  const Expr next_free = has_free ? rule("property", grammar_.sequence({marks_.comma(), free})) : grammar_.never();
  // what may follow the last named member, by the count so far
  std::vector<Expr> row(top + 1);
  for (std::uint32_t count = 0; count <= top; count++) {
    const std::uint32_t missing = least > count ? least - count : 0;
    const std::uint32_t room = most == Branch::kNoLimit ? most : most - count;
    std::vector<Expr> all;
    if (missing == 0 && count > 0) all.push_back(grammar_.empty());
    if (has_free && missing <= 1 && room > 0) {
      const std::uint32_t less = room == Branch::kNoLimit ? room : room - 1;
      all.push_back(grammar_.sequence({count > 0 ? next_free : free, between(next_free, 0, less)}));
    }
    row[count] = grammar_.choice(all);
  }
  for (std::uint32_t i = size; i-- > 0;) {
    std::vector<Expr> before(top + 1);
    for (std::uint32_t count = 0; count <= std::min(top, i); count++) {
      std::vector<Expr> all;
      const std::uint32_t after = most == Branch::kNoLimit ? std::min(count + 1, top) : count + 1;
      if (after <= top)
        all.push_back(
            grammar_.sequence({count > 0 ? marks_.comma() : grammar_.empty(), members[i].expr, row[after]}));
      if (!members[i].required) all.push_back(row[count]);
      before[count] = rule("properties", grammar_.choice(all));
    }
    // without an upper bound, all counts from `top` on are equivalent
    for (std::uint32_t count = std::min(top, i) + 1; count <= top; count++) before[count] = grammar_.never();
    row = std::move(before);
  }
  return row[0];
}

}  // namespace aici::json_schema
