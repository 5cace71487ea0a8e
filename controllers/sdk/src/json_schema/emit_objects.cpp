// Objects: the named properties in the order of the schema, or in any order, and other properties.
#include <algorithm>
#include <set>

#include "emitter.hpp"

namespace aici::json_schema {
namespace {

/// Maximum number of kinds of other names, which are distinguished by the patterns that they match.
constexpr std::size_t kMaxSorts = 64;
/// Maximum number of constraints on some property, for all sets of which there are rules.
constexpr std::size_t kMaxSome = 4;
/// Maximum number of unnamed properties to count beside such constraints.
constexpr std::uint32_t kMaxRoom = 64;
/// Maximum number of texts of each length to look at when names are counted, and maximum length.
constexpr std::size_t kMaxTexts = 64, kLongestName = 64;
constexpr const char* kTooManyUnnamed = "so many properties without a name in the schema cannot be required";

}  // namespace

/// Returns whether schemas of propertyNames allow the name.
bool Emitter::may_be_named(const Goal& goal, std::string_view name) {
  if (goal.empty()) return true;
  const Shape& shape = expander_.use(expander_.simplify(goal));
  for (const Value value : shape.literals)
    if (document_.is(value, Kind::kString) && document_.text(value) == name) return true;
  const std::uint32_t size = length(name);
  for (const Branch& names : shape.branches) {
    if (!(names.types & kString) || size < names.min_length || size > names.max_length) continue;
    bool good = std::find(names.not_strings.begin(), names.not_strings.end(), name) == names.not_strings.end();
    for (const Branch::Text& text : names.texts)
      good = good && strings_.meets(text, name);
    if (good) return true;
  }
  return false;
}

/// Returns whether a property with this name certainly meets the constraint, apart from its value.
bool Emitter::meets_name(const Branch::Some& some, std::string_view name) {
  if (some.outside) {
    if (std::binary_search(some.outside->names.begin(), some.outside->names.end(), name)) return false;
    for (const std::string_view pattern : some.outside->patterns)
      if (strings_.matches(pattern, false, name).value_or(true)) return false;
  }
  return (!some.pattern || strings_.matches(*some.pattern, false, name).value_or(false)) &&
         may_be_named(some.names, name);
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
  for (const Branch::Some& some : branch.some)
    if (some.outside)
      for (const std::string_view name : some.outside->names) add(name);
  const PropertyIndex own = index_properties(branch);
  const std::set<std::string_view> needed(branch.required.begin(), branch.required.end());
  for (const std::string_view name : order) {
    names->push_back(name);
    const bool required = needed.contains(name);
    const Goal goal = expander_.property_goal(branch, own, name);
    Met by_name = 0, by_value = 0;
    for (std::size_t i = 0; i < branch.some.size(); i++)
      if (meets_name(branch.some[i], name)) (has_any_value(branch.some[i]) ? by_name : by_value) |= 1u << i;
    const bool never = (goal.size() == 1 && goal[0] == kNever) || !may_be_named(branch.names, name);
    std::string key;
    append_json_string(name, &key);
    Member member{name, {}, required};
    for (Met met = 0; !never && met < 1u << branch.some.size(); met++) {
      if (met & ~by_value) continue;
      Goal whole = goal;
      for (std::size_t i = 0; i < branch.some.size(); i++)
        if (met >> i & 1) whole.insert(whole.end(), branch.some[i].values.begin(), branch.some[i].values.end());
      const Expr inside = value(std::move(whole));
      if (inside != grammar_.never())
        member.ways.emplace_back(met | by_name, marks_.property(key, inside));
    }
    if (!member.ways.empty())
      out->push_back(std::move(member));
    else if (required)
      return false;
  }
  return true;
}

/// Lists the names that match `like` (a branch for strings) and satisfy `goal`, but not those that are in `except`.
Emitter::Names Emitter::names_of(const Branch& like, const Goal& goal, const std::vector<std::string_view>& except) {
  Names found;
  if (goal.empty()) {
    found.branches.push_back(like);
    found.branches[0].not_strings = except;
    return found;
  }
  const Shape& shape = expander_.use(expander_.simplify(goal));
  for (const Value value : shape.literals) {
    if (!document_.is(value, Kind::kString)) continue;
    const std::string_view name = document_.text(value);
    bool good = std::find(except.begin(), except.end(), name) == except.end();
    for (const Branch::Text& text : like.texts)
      good = good && strings_.meets(text, name);
    if (good) found.literals.push_back(value);
  }
  for (Branch one : shape.branches) {
    if (!(one.types & kString)) continue;
    one.texts.insert(one.texts.end(), like.texts.begin(), like.texts.end());
    one.not_strings.insert(one.not_strings.end(), except.begin(), except.end());
    found.branches.push_back(std::move(one));
  }
  return found;
}

/// Returns these names as texts of JSON.
cfg::Expr Emitter::keys(const Branch& like, const Goal& goal, const std::vector<std::string_view>& except) {
  const Names names = names_of(like, goal, except);
  std::vector<Expr> all;
  for (const Value value : names.literals) all.push_back(literal(value, 0));
  for (const Branch& one : names.branches) all.push_back(string(one));
  return grammar_.choice(all);
}

/// Sorts the names of properties that are not named by the patterns that they match. Returns false, with a problem, if
/// there are too many sorts.
bool Emitter::sort_free(const Branch& branch, Free* free) {
  const auto add = [&](std::string_view pattern, Value where) {
    for (const auto& [known, place] : free->patterns)
      if (known == pattern) return;
    free->patterns.emplace_back(pattern, where);
  };
  for (const Branch::Property& pattern : branch.patterns) add(pattern.name, schema_of(pattern.schema));
  for (const Branch::Additional& rest : branch.additional)
    for (const std::string_view pattern : rest.known->patterns) add(pattern, schema_of(rest.schema));
  for (const Branch::Some& some : branch.some) {
    if (some.pattern) add(*some.pattern, some.where);
    if (some.outside)
      for (const std::string_view pattern : some.outside->patterns) add(pattern, some.where);
  }
  free->sorts = {{}};
  for (std::size_t i = 0; i < free->patterns.size(); i++) {
    std::vector<std::vector<bool>> next;
    for (const std::vector<bool>& sort : free->sorts)
      for (const bool matches : {false, true}) {
        next.push_back(sort);
        next.back().push_back(matches);
        if (!matches || std::count(sort.begin(), sort.end(), true) == 0) continue;
        // often no name matches both of two patterns
        Branch both;
        for (std::size_t k = 0; k <= i; k++)
          if (next.back()[k]) both.texts.push_back({free->patterns[k].first, free->patterns[k].second, false, false});
        const Branch::Text* cause = nullptr;
        std::string problem;
        bool empty = false;
        const auto language = strings_.language(both, Strings::Lengths::kWrittenOut, &cause, &problem);
        if (language && !Strings::compile(language->pattern, &empty, &problem) && empty) next.pop_back();
      }
    free->sorts = std::move(next);
    if (free->sorts.size() > kMaxSorts) {
      problems_.unsupported(free->patterns[i].second, "too many patterns for names overlap");
      free->sorts.clear();
      return false;
    }
  }
  return true;
}

/// Returns a property that is not named and that meets `met` of Branch::some. If another one of `open` is met by each
/// value, the property must not have such a name. An earlier property met `kept` by its value. Since this property
/// may have the same name, which replaces that value, it must meet them, too, where they apply to it.
cfg::Expr Emitter::free_member(const Branch& branch, Free& free, Met open, Met met, Met kept) {
  const auto [made, added] = free.made.insert({{open, {met, kept}}, grammar_.never()});
  if (!added) return made->second;
  const auto matches = [&](const std::vector<bool>& sort, std::string_view pattern) {
    for (std::size_t i = 0; i < sort.size(); i++)
      if (free.patterns[i].first == pattern) return static_cast<bool>(sort[i]);
    return false;
  };
  const auto matches_any = [&](const std::vector<bool>& sort, const KeySet& known) {
    return std::any_of(known.patterns.begin(), known.patterns.end(),
                       [&](std::string_view pattern) { return matches(sort, pattern); });
  };
  std::vector<Expr> all;
  for (const std::vector<bool>& sort : free.sorts) {
    Goal goal, names = branch.names;
    Branch like;
    for (std::size_t i = 0; i < sort.size(); i++)
      like.texts.push_back({free.patterns[i].first, free.patterns[i].second, false, !sort[i]});
    for (const Branch::Property& pattern : branch.patterns)
      if (matches(sort, pattern.name)) goal.push_back(pattern.schema);
    for (const Branch::Additional& rest : branch.additional)
      if (!matches_any(sort, *rest.known)) goal.push_back(rest.schema);
    bool possible = true;
    for (std::size_t i = 0; i < branch.some.size(); i++) {
      const Branch::Some& some = branch.some[i];
      const bool here = (!some.pattern || matches(sort, *some.pattern)) &&
                        (!some.outside || !matches_any(sort, *some.outside));
      if (met >> i & 1) {
        possible = possible && here;
        names.insert(names.end(), some.names.begin(), some.names.end());
        goal.insert(goal.end(), some.values.begin(), some.values.end());
      } else if (here && (kept >> i & 1)) {
        goal.insert(goal.end(), some.values.begin(), some.values.end());
      } else if (here && (open >> i & 1) && some.names.empty()) {
        possible = possible && !has_any_value(some);
      }
    }
    if (!possible) continue;
    const Expr inside = value(std::move(goal));
    if (inside == grammar_.never()) continue;
    const Expr key = keys(like, names, free.names);
    if (key != grammar_.never()) all.push_back(marks_.property(key, inside));
  }
  return made->second = grammar_.choice(all);
}

/// Returns whether there are certainly so many names that are not listed.
bool Emitter::has_free_names(const Branch& branch, const Free& free, std::uint32_t least) {
  const auto written = [](std::string_view name) {
    std::string text;
    append_json_string(name, &text);
    return text.substr(1, text.size() - 2);
  };
  std::set<std::string> found;
  for (const std::vector<bool>& sort : free.sorts) {
    Free one;
    one.patterns = free.patterns, one.sorts = {sort}, one.names = free.names;
    if (free_member(branch, one, 0, 0, 0) == grammar_.never()) continue;
    Branch like;
    for (std::size_t i = 0; i < sort.size(); i++)
      like.texts.push_back({free.patterns[i].first, free.patterns[i].second, false, !sort[i]});
    const Names names = names_of(like, branch.names, free.names);
    for (const Value value : names.literals) found.insert(written(document_.text(value)));
    for (const Branch& some : names.branches) {
      std::set<std::string> except;
      for (const std::string_view name : some.not_strings) except.insert(written(name));
      const Branch::Text* cause = nullptr;
      std::string problem;
      bool empty = false;
      const auto language = strings_.language(some, Strings::Lengths::kWrittenOut, &cause, &problem);
      auto automaton = language ? Strings::compile(language->pattern, &empty, &problem) : nullptr;
      if (!automaton) continue;
      std::vector<std::pair<regex::Regex::State, std::string>> texts{{automaton->initial(), ""}};
      for (std::size_t length = 0; !texts.empty() && length < kLongestName && found.size() < least; length++) {
        std::vector<std::pair<regex::Regex::State, std::string>> longer;
        for (const auto& [state, text] : texts) {
          if (automaton->accepting(state) && !except.contains(text)) found.insert(text);
          for (unsigned byte = 0; byte < 256 && longer.size() < kMaxTexts; byte++)
            if (const auto next = automaton->append(state, static_cast<std::uint8_t>(byte)); !automaton->dead(next))
              longer.emplace_back(next, text + static_cast<char>(byte));
        }
        texts = std::move(longer);
      }
    }
  }
  return found.size() >= least;
}

/// Returns `least` to `room` properties that are not named, each after a comma, that meet `open` of Branch::some.
cfg::Expr Emitter::rest_of_free(const Branch& branch, Free& free, Met open, Met kept, std::uint32_t least,
                                std::uint32_t room) {
  if (least > room) return grammar_.never();
  const auto known = free.rests.find({{open, kept}, {least, room}});
  if (known != free.rests.end()) return known->second;
  Expr& rest = free.rests[{{open, kept}, {least, room}}];
  const auto after_comma = [&](Met met) {
    const Expr member = free_member(branch, free, open, met, kept);
    return member == grammar_.never() ? member : grammar_.sequence({marks_.comma(), member});
  };
  if (open == 0 && kept == 0) return rest = between(rule("property", after_comma(0)), least, room);
  if (room == 0) return rest = open == 0 ? grammar_.empty() : grammar_.never();
  if (room != Branch::kNoLimit && room > kMaxRoom) {
    problems_.unsupported(branch.some[0].where, "too many properties would have to be counted");
    return rest = grammar_.never();
  }
  const cfg::Rule rule = grammar_.declare("properties");
  rest = grammar_.call(rule);
  std::vector<Expr> all;
  if (open == 0 && least == 0) all.push_back(grammar_.empty());
  for (Met met = 0; met <= open; met++) {
    if (met & ~open) continue;
    const Expr member = after_comma(met);
    if (member == grammar_.never()) continue;
    const std::uint32_t less = room == Branch::kNoLimit ? room : room - 1;
    all.push_back(grammar_.sequence({member, rest_of_free(branch, free, open & ~met, kept | by_value(branch, met),
                                                          least > 0 ? least - 1 : 0, less)}));
  }
  grammar_.define(rule, grammar_.choice(all));
  return grammar_.call(rule);
}

/// Returns those of a set that depend on the value of the property.
Emitter::Met Emitter::by_value(const Branch& branch, Met met) const {
  for (std::size_t i = 0; i < branch.some.size(); i++)
    if (has_any_value(branch.some[i])) met &= ~(1u << i);
  return met;
}

cfg::Expr Emitter::object(const Branch& branch) {
  if (branch.some.size() > kMaxSome) {
    problems_.unsupported(branch.some[0].where, "too many constraints on some property are combined");
    return grammar_.never();
  }
  Free others;
  std::vector<Member> members;
  if (!this->members(branch, &others.names, &members)) return grammar_.never();
  // names that a schema lists without describing their values are not free either
  std::set<std::string_view> seen(others.names.begin(), others.names.end());
  for (const Branch::Additional& rest : branch.additional)
    for (const std::string_view name : rest.known->names)
      if (seen.insert(name).second) others.names.push_back(name);
  const bool may_be_free = branch.max_properties > 0 && sort_free(branch, &others);
  const Expr free = may_be_free ? free_member(branch, others, 0, 0, 0) : grammar_.never();
  const bool has_free = free != grammar_.never();
  const auto required = static_cast<std::uint32_t>(
      std::count_if(members.begin(), members.end(), [](const Member& member) { return member.required; }));
  const bool none = required == 0 && branch.min_properties == 0;
  const bool enough = branch.min_properties <= required && branch.some.empty();
  const bool roomy =
      has_free ? branch.max_properties == Branch::kNoLimit : branch.max_properties >= members.size();
  std::vector<Expr> all;
  if (none) all.push_back(marks_.empty_object());
  // several properties count for a minimum only if their names differ
  const std::uint32_t spare = branch.some.empty() ? 0 : kMaxRoom;
  const bool names_differ = !enough && branch.min_properties > 1 && branch.min_properties <= kMaxRoom &&
                            has_free && has_free_names(branch, others, branch.min_properties + spare);
  // a model that begins the name of an optional property late must be able to end it: otherwise it has to write another
  // name that begins in the same way or, where there is none, to leave out what it was about to say
  const bool any_order = branch.some.empty() && members.size() + has_free > 1 &&
                         (order_ == Order::kAny || required < members.size());
  const auto in_order = [&] {
    return any_order         ? in_any_order(branch, members, free, names_differ)
           : enough && roomy ? uncounted(members, free)
                             : counted(branch, members, others, names_differ);
  };
  Expr body = in_order();
  if (order_ == Order::kSchema && branch.some.empty() && reorder(branch, &members))
    body = grammar_.choice({body, in_order()});
  const Expr inside = grammar_.sequence({body, marks_.close_object()});
  if (body != grammar_.never())
    all.push_back(names_differ ? different_items("{", inside) : grammar_.sequence({marks_.open_object(), inside}));
  return grammar_.choice(all);
}

/// Puts required members in the order of `required` if the order of their properties may not be the author's, since it is
/// alphabetical: many programs sort names, and none sorts lists. Returns whether that changes anything.
bool Emitter::reorder(const Branch& branch, std::vector<Member>* members) {
  std::vector<Member*> places;
  for (Member& member : *members)
    if (member.required) places.push_back(&member);
  const auto name = [](const Member* member) { return member->name; };
  if (!std::ranges::is_sorted(places, {}, name)) return false;
  std::vector<Member> listed;
  for (const std::string_view required : branch.required)
    listed.push_back(**std::ranges::lower_bound(places, required, {}, name));
  bool changed = false;
  for (std::size_t i = 0; i < places.size(); i++) {
    changed = changed || places[i]->name != listed[i].name;
    *places[i] = std::move(listed[i]);
  }
  return changed;
}

/// Returns one or more members with commas between them: in any order, or only the required ones in their order.
cfg::Expr Emitter::in_any_order(const Branch& branch, const std::vector<Member>& members, Expr free, bool names_differ) {
  const auto declare = [&](Expr expr) {
    const auto [known, added] = property_rules_.try_emplace(expr);
    if (added) grammar_.define(known->second = grammar_.declare("property"), expr);
    return known->second;
  };
  cfg::AnyOrder order{
      .separator = declare(marks_.comma()), .least = branch.min_properties, .most = branch.max_properties};
  const auto add = [&](Expr expr, bool required, bool repeats) {
    order.parts.push_back({declare(expr), required, repeats});
  };
  for (const Member& member : members) add(member.ways[0].second, member.required, false);
  if (free != grammar_.never()) add(free, false, true);
  order.repeats_count_once = !names_differ;
  order.required_in_order = order_ == Order::kSchema;
  if (order.feasible(order.none())) return grammar_.any_order(std::move(order));
  if (free != grammar_.never() && branch.min_properties_at != kNone)
    problems_.unsupported(branch.min_properties_at, kTooManyUnnamed);
  return grammar_.never();
}

/// Returns all members with commas between them, and then any number of other properties.
cfg::Expr Emitter::uncounted(const std::vector<Member>& members, Expr free) {
  const bool has_free = free != grammar_.never();
  if (members.empty() && !has_free) return grammar_.never();
  std::vector<Expr> all;
  for (const Member& member : members) {
    if (!all.empty()) all.push_back(marks_.comma());
    all.push_back(member.ways[0].second);
  }
  if (has_free && members.empty()) all.push_back(free);
  if (has_free) all.push_back(rule("properties", grammar_.star(grammar_.sequence({marks_.comma(), free}))));
  return grammar_.sequence(all);
}

/// Counts members: one rule for each number of the next member, the count so far, and what is met of Branch::some.
/// Unless all names differ, at most one unnamed property counts for the minimum.
cfg::Expr Emitter::counted(const Branch& branch, const std::vector<Member>& members, Free& free, bool names_differ) {
  const bool has_free = free_member(branch, free, 0, 0, 0) != grammar_.never();
  const auto size = static_cast<std::uint32_t>(members.size());
  const std::uint32_t least = branch.min_properties, most = branch.max_properties;
  if (!names_differ && least > size + (has_free ? 1 : 0)) {
    if (has_free && branch.min_properties_at != kNone)
      problems_.unsupported(branch.min_properties_at, kTooManyUnnamed);
    return grammar_.never();
  }
  const Met sets = 1u << branch.some.size(), all_met = sets - 1;
  const std::uint32_t top = most == Branch::kNoLimit ? least : std::min(most, size);
  if ((size + 1ull) * (top + 1ull) * sets > limits_.counted_states) {
    problems_.unsupported(branch.min_properties_at == kNone ? 0 : branch.min_properties_at,
                          "too many properties would have to be counted");
    return grammar_.never();
  }
  // what may follow the last named member, by the count so far and what is met
  std::vector<Expr> row;
  for (std::uint32_t state = 0; state < (top + 1) * sets; state++) {
    const std::uint32_t count = state / sets;
    const Met open = all_met & ~(state % sets);
    const std::uint32_t missing = least > count ? least - count : 0;
    const std::uint32_t room = most == Branch::kNoLimit ? most : most - count;
    std::vector<Expr> all;
    if (missing == 0 && count > 0 && open == 0) all.push_back(grammar_.empty());
    const bool possible = has_free && room > 0 && (names_differ || missing <= 1);
    for (Met met = 0; possible && met <= open; met++) {
      if (met & ~open) continue;
      const Expr member = free_member(branch, free, open, met, 0);
      if (member == grammar_.never()) continue;
      const std::uint32_t less = room == Branch::kNoLimit ? room : room - 1;
      all.push_back(grammar_.sequence({count > 0 ? marks_.comma() : grammar_.empty(), member,
                                       rest_of_free(branch, free, open & ~met, by_value(branch, met),
                                                    missing > 1 ? missing - 1 : 0, less)}));
    }
    row.push_back(grammar_.choice(all));
  }
  for (std::uint32_t i = size; i-- > 0;) {
    std::vector<Expr> before;
    for (std::uint32_t state = 0; state < (top + 1) * sets; state++) {
      const std::uint32_t count = state / sets;
      // without an upper bound, all counts from `top` on are equivalent
      if (count > i) {
        before.push_back(grammar_.never());
        continue;
      }
      std::vector<Expr> all;
      const std::uint32_t after = most == Branch::kNoLimit ? std::min(count + 1, top) : count + 1;
      for (const auto& [met, member] : members[i].ways)
        if (after <= top)
          all.push_back(grammar_.sequence({count > 0 ? marks_.comma() : grammar_.empty(), member,
                                           row[after * sets + (state % sets | met)]}));
      if (!members[i].required) all.push_back(row[state]);
      before.push_back(rule("properties", grammar_.choice(all)));
    }
    row = std::move(before);
  }
  return row[0];
}

}  // namespace aici::json_schema
