#include "rules.hpp"

#include <algorithm>

#include "aici/host.hpp"
#include "patterns.hpp"

namespace aici::front {
namespace {

/// Maximum number of warnings about rules. (Finding the position of a warning takes time: lines are counted.)
constexpr std::size_t kMaxWarnings = 20;

/// Returns the number of characters to change, insert, delete, or swap with the next one.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last, row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); j++) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); i++) {
    before = std::move(last), last = std::move(row);
    row.assign(b.size() + 1, i);
    for (std::size_t j = 1; j <= b.size(); j++) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest(std::string_view name, const std::vector<std::string_view>& names) {
  std::string_view best;
  std::size_t least = std::max<std::size_t>(1, name.size() / 3) + 1;
  for (std::string_view other : names) {
    if (other.size() + least < name.size() || name.size() + least < other.size()) continue;
    if (const std::size_t d = distance(name, other); d < least) best = other, least = d;
  }
  return best;
}

Rules::Named& Rules::named(std::string_view name, std::size_t at) {
  const auto found = rules_.find(name);
  if (found != rules_.end()) return found->second;
  return rules_.emplace(name, Named{grammar_.declare(name), false, at}).first->second;
}

void Rules::enter(std::string_view name, std::size_t at, bool quiet) {
  current_ = &named(name, at);
  if (!current_->defined) current_->at = at;
  current_->defined = true;
  current_->quiet = quiet;
}

cfg::Expr Rules::call(std::string_view name, std::size_t at) {
  const cfg::Rule rule = named(name, at).rule;
  current_->calls.push_back(rule);
  return grammar_.call(rule);
}

const Rules::Named* Rules::find(std::string_view name) const {
  const auto found = rules_.find(name);
  return found == rules_.end() || !found->second.defined ? nullptr : &found->second;
}

std::string Rules::suggestion(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const auto& [known, rule] : rules_)
    if (rule.defined) names.push_back(known);
  const std::string_view best = nearest(name, names);
  return best.empty() ? "" : "; did you mean " + std::string(best) + "?";
}

std::vector<const Rules::Entry*> Rules::in_order() const {
  std::vector<const Entry*> all;
  for (const Entry& entry : rules_) all.push_back(&entry);
  std::sort(all.begin(), all.end(), [](auto a, auto b) { return a->second.at < b->second.at; });
  return all;
}

void Rules::check_names(std::string_view start) const {
  for (const Entry* entry : in_order())
    if (!entry->second.defined)
      source_.fail(entry->second.at, "there is no rule for " + entry->first + suggestion(entry->first));
  if (find(start) == nullptr)
    aici::fail("the grammar has no start rule, " + std::string(start) + suggestion(start));
}

std::vector<bool> Rules::used_by(const Named& start) const {
  std::vector<const Named*> by_number(grammar_.num_rules()), open{&start};
  for (const Entry& entry : rules_) by_number[entry.second.rule] = &entry.second;
  std::vector<bool> used(grammar_.num_rules());
  used[start.rule] = true;
  while (!open.empty()) {
    const Named* rule = open.back();
    open.pop_back();
    for (const cfg::Rule called : rule->calls)
      if (!used[called]) used[called] = true, open.push_back(by_number[called]);
  }
  return used;
}

void Rules::check_texts(std::string_view start) const {
  const Named& first = *find(start);
  const std::vector<bool> used = used_by(first), productive = grammar_.productive();
  const auto has_text = [&](cfg::Rule rule) { return productive[grammar_.body(rule)]; };
  if (!has_text(first.rule))
    source_.fail(first.at,
                 std::string(start) + " matches no text: each of its alternatives needs a rule that matches no text");
  std::size_t warnings = 0;
  for (const Entry* entry : in_order()) {
    const auto& [name, rule] = *entry;
    if (rule.quiet || (used[rule.rule] && has_text(rule.rule)) || ++warnings > kMaxWarnings) continue;
    warn(source_, rule.at, used[rule.rule] ? name + " matches no text, so what needs it is removed"
                                           : "the rule " + name + " is not used");
  }
  if (warnings > kMaxWarnings)
    log("warning: the same applies to " + std::to_string(warnings - kMaxWarnings) + " more rules\n");
}

}  // namespace aici::front
