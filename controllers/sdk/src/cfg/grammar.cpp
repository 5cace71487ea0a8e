#include "aici/cfg/grammar.hpp"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "aici/cfg/groups.hpp"

namespace aici::cfg {

using Kind = Grammar::Node::Kind;

Grammar::Grammar(Lexemes lexemes) : lexemes_(lexemes) { forget_rules(nullptr); }

void Grammar::forget_rules(std::shared_ptr<KnownTerminals> known) {
  known_ = std::move(known);
  nodes_.clear(), ids_.clear(), rules_.clear(), orders_.clear(), captured_.clear(), ignored_.clear(), tokens_.clear();
  add({Kind::kEmpty});
  add({Kind::kNever});
}

Expr Grammar::add(const Node& node) {
  Hasher hash;
  hash.add(static_cast<std::uint32_t>(node.kind)), hash.add(node.a), hash.add(node.b);
  hash.add(node.least), hash.add(node.most);
  const auto same = [&](std::uint32_t i) { return nodes_[i] == node; };
  if (const std::uint32_t known = ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  const auto expr = static_cast<Expr>(nodes_.size());
  nodes_.push_back(node);
  ids_.insert(hash.bits(), expr);
  return expr;
}

Expr Grammar::literal(std::string_view bytes) {
  if (bytes.empty()) return kEmpty;
  const bool longest = lexemes_ == Lexemes::kLongest;
  Hasher hash;
  hash.add(longest);
  for (const char c : bytes) hash.add(static_cast<std::uint8_t>(c));
  const auto same = [&](std::uint32_t i) { return literals_[i] == bytes && terminals_.longest(i) == longest; };
  if (const std::uint32_t known = literal_ids_.find(hash.bits(), same); known != HashIndex::kNone)
    return terminal(known);
  const Terminal made = terminals_.add_literal(bytes);
  literals_.resize(made + 1);
  literals_[made] = bytes;
  literal_ids_.insert(hash.bits(), made);
  return terminal(made);
}

Expr Grammar::token(TokenId token) {
  if (std::ranges::find(tokens_, token) == tokens_.end()) tokens_.push_back(token);
  return literal(token_bytes(token));
}

void Grammar::set_temperature(Expr expr, float temperature) {
  const Node& node = nodes_[expr];
  if (node.kind == Kind::kTerminal) terminals_.set_temperature(node.a, temperature);
  if (node.kind == Kind::kChoice) set_temperature(node.a, temperature), set_temperature(node.b, temperature);
}

Expr Grammar::regex(std::shared_ptr<regex::Regex> regex) {
  const bool may_be_empty = regex->accepting(regex->initial());
  if (regex->ended(regex->initial())) return may_be_empty ? kEmpty : kNever;
  const std::optional<Terminal> known = terminals_.find(*regex, lexemes_);
  const Expr made = terminal(known ? *known : terminals_.add_regex(std::move(regex), false));
  return may_be_empty ? optional(made) : made;
}

Expr Grammar::early_regex(regex::Regex regex) {
  if (regex.ended(regex.initial())) return kNever;
  return terminal(terminals_.add_regex(std::make_shared<regex::Regex>(std::move(regex)), true));
}

Expr Grammar::substring(Substrings substrings) {
  return optional(terminal(terminals_.add_substring(std::move(substrings))));
}

Expr Grammar::regex_except(std::shared_ptr<regex::Regex> regex, std::span<const std::string> texts) {
  Except except(std::move(regex), texts);
  const bool may_be_empty = except.accepting(1);
  if (except.ended(1)) return may_be_empty ? kEmpty : kNever;
  const Expr made = terminal(terminals_.add_except(std::move(except)));
  return may_be_empty ? optional(made) : made;
}

Expr Grammar::counted(const Counted& counted) {
  if (counted.empty()) return kNever;
  const bool may_be_empty = counted.accepting(1);
  if (counted.ended(1)) return may_be_empty ? kEmpty : kNever;
  const Expr made = terminal(terminals_.add_counted(counted));
  return may_be_empty ? optional(made) : made;
}

std::string_view Grammar::literal_of(Expr expr) const {
  const Node& node = nodes_[expr];
  return node.kind == Kind::kTerminal && node.a < literals_.size() ? std::string_view(literals_[node.a]) : "";
}

/// Joins adjacent literals, unless ignored text may occur between them.
Expr Grammar::sequence(std::span<const Expr> parts) {
  Expr all = kEmpty;
  for (std::size_t i = parts.size(); i-- > 0;) {
    const Expr part = parts[i];
    if (part == kNever || all == kNever) return kNever;
    if (part == kEmpty) continue;
    if (all == kEmpty) {
      all = part;
      continue;
    }
    const Node next = nodes_[all];
    const std::string_view left = literal_of(part), right = literal_of(next.kind == Kind::kSequence ? next.a : all);
    if (lexemes_ == Lexemes::kAnywhere && !left.empty() && !right.empty()) {
      const Expr joined = literal(std::string(left).append(right));
      all = next.kind == Kind::kSequence ? add({Kind::kSequence, joined, next.b}) : joined;
      continue;
    }
    all = add({Kind::kSequence, part, all});
  }
  return all;
}

Expr Grammar::choice(std::span<const Expr> alternatives) {
  Expr all = kNever;
  for (std::size_t i = alternatives.size(); i-- > 0;) {
    const Expr one = alternatives[i];
    if (one == kNever || one == all) continue;
    all = all == kNever ? one : add({Kind::kChoice, one, all});
  }
  return all;
}

Expr Grammar::repeat(Expr expr, std::uint32_t least, std::uint32_t most) {
  if (most == 0 || expr == kEmpty || (expr == kNever && least == 0)) return kEmpty;
  if (expr == kNever || least > most) return kNever;
  if (least == 1 && most == 1) return expr;
  return add({Kind::kRepeat, expr, 0, least, most});
}

Expr Grammar::any_order(AnyOrder order) {
  orders_.push_back(std::move(order));
  return add({Kind::kAnyOrder, static_cast<std::uint32_t>(orders_.size() - 1)});
}

Rule Grammar::declare(std::string_view name) {
  rules_.push_back({std::string(name), lexemes_});
  return static_cast<Rule>(rules_.size() - 1);
}

void Grammar::define(Rule rule, Expr expr) { rules_[rule].body = choice({rules_[rule].body, expr}); }

Expr Grammar::call(Rule rule) { return add({Kind::kCall, rule}); }

void Grammar::capture(Rule rule, Captured captured) { captured_.insert_or_assign(rule, std::move(captured)); }

void Grammar::ignore(Expr expr) {
  const Node& node = nodes_[expr];
  if (node.kind == Kind::kTerminal) ignored_.push_back(node.a);
  if (node.kind == Kind::kChoice) ignore(node.a), ignore(node.b);
}

std::optional<AnyOrder> Grammar::possible(const AnyOrder& order, const std::vector<bool>& productive) const {
  AnyOrder some = order;
  const auto has_text = [&](const AnyOrder::Part& part) { return productive[rules_[part.rule].body]; };
  std::erase_if(some.parts, [&](const AnyOrder::Part& part) { return !part.required && !has_text(part); });
  if (some.parts.empty() || !std::ranges::all_of(some.parts, has_text) || !some.feasible(some.none())) return std::nullopt;
  return some;
}

bool Grammar::completes_without(Rule start, std::span<const Terminal> terminals) const {
  const std::vector<bool> all = productive(), some = solve(false, terminals);
  for (Expr e = 0; e < nodes_.size(); e++) {
    const Node& node = nodes_[e];
    if (!all[e]) continue;
    // what may have to follow after a part of it
    if (node.kind == Kind::kSequence && !some[node.b]) return false;
    if (node.kind == Kind::kRepeat && node.least > 1 && !some[node.a]) return false;
    if (node.kind == Kind::kAnyOrder && !some[e]) return false;
  }
  return some[rules_[start].body];
}

std::vector<bool> Grammar::solve(bool only_empty, std::span<const Terminal> without) const {
  // for each expression, its users: they are examined again when it joins the set
  std::vector<std::uint32_t> first(nodes_.size() + 2);
  const auto each_use = [&](auto visit) {
    for (Expr e = 0; e < nodes_.size(); e++) {
      const Node& node = nodes_[e];
      const bool both = node.kind == Kind::kSequence || node.kind == Kind::kChoice;
      if (both || node.kind == Kind::kRepeat) visit(node.a, e);
      if (both) visit(node.b, e);
      if (node.kind == Kind::kCall) visit(rules_[node.a].body, e);
      if (node.kind == Kind::kAnyOrder)
        for (const AnyOrder::Part& part : orders_[node.a].parts) visit(rules_[part.rule].body, e);
    }
  };
  each_use([&](Expr used, Expr) { first[used + 2]++; });
  for (std::size_t i = 2; i < first.size(); i++) first[i] += first[i - 1];
  std::vector<Expr> users(first.back());
  each_use([&](Expr used, Expr user) { users[first[used + 1]++] = user; });
  std::vector<bool> in(nodes_.size());
  const auto has_order = [&](const AnyOrder& order) {
    if (!only_empty) return possible(order, in).has_value();
    // a single part, since separators are not empty
    const auto [start, last] = order.next(order.none());
    for (std::size_t i = start; i < last; i++) {
      AnyOrder::Written written = order.none();
      if (in[rules_[order.parts[i].rule].body] && order.add(i, &written) && order.complete(written)) return true;
    }
    return false;
  };
  std::vector<Expr> found;
  const auto look = [&](Expr e) {
    if (in[e]) return;  // most users are, the second time
    const Node& node = nodes_[e];
    const bool is = node.kind == Kind::kEmpty      ? true
                    : node.kind == Kind::kTerminal ? !only_empty && std::ranges::find(without, node.a) == without.end()
                    : node.kind == Kind::kCall     ? in[rules_[node.a].body]
                    : node.kind == Kind::kSequence ? in[node.a] && in[node.b]
                    : node.kind == Kind::kChoice   ? in[node.a] || in[node.b]
                    : node.kind == Kind::kRepeat   ? node.least == 0 || in[node.a]
                    : node.kind == Kind::kAnyOrder ? has_order(orders_[node.a])
                                                   : false;
    if (!is) return;
    in[e] = true;
    found.push_back(e);
  };
  for (Expr e = 0; e < nodes_.size(); e++) look(e);
  while (!found.empty()) {
    const Expr e = found.back();
    found.pop_back();
    for (std::uint32_t i = first[e]; i < first[e + 1]; i++) look(users[i]);
  }
  return in;
}

// Parts in any order: what may follow the parts that have been written.

namespace {

bool has(const AnyOrder::Written& written, std::size_t part) { return written[part / 32] >> (part % 32) & 1; }

std::uint32_t different(const AnyOrder::Written& written) {
  std::uint32_t count = 0;
  for (std::size_t i = 0; i + 1 < written.size(); i++) count += static_cast<std::uint32_t>(std::popcount(written[i]));
  return count;
}

}  // namespace

bool AnyOrder::complete(const Written& written) const {
  for (std::size_t i = 0; i < parts.size(); i++)
    if (parts[i].required && !has(written, i)) return false;
  const std::uint32_t repeated = repeats_count_once ? std::min(written.back(), 1u) : written.back();
  return different(written) + repeated >= least;
}

bool AnyOrder::feasible(const Written& written) const {
  std::uint32_t required = 0, left = 0;
  bool repeat = false;
  for (std::size_t i = 0; i < parts.size(); i++) {
    required += parts[i].required && !has(written, i);
    left += !parts[i].repeats && !has(written, i);
    repeat = repeat || parts[i].repeats;
  }
  const std::uint32_t once = different(written), repeated = written.back();
  const std::uint32_t counted = once + (repeats_count_once ? std::min(repeated, 1u) : repeated);
  if (most != kNoLimit && once + repeated + required > most) return false;
  if (counted >= least) return true;
  const std::uint32_t room = most == kNoLimit ? most : most - once - repeated;
  const std::uint32_t more = !repeat ? 0 : repeats_count_once ? repeated == 0 : kNoLimit - left;
  return least - counted <= std::min(room, left + more);
}

std::pair<std::size_t, std::size_t> AnyOrder::next(const Written& written) const {
  std::size_t first = 0;
  for (std::size_t i = 0; required_in_order && i < parts.size(); i++) {
    if (parts[i].required && !has(written, i)) return {first, i + 1};
    if (parts[i].required) first = i + 1;
  }
  return {0, parts.size()};
}

bool AnyOrder::add(std::size_t part, Written* written) const {
  if (!parts[part].repeats) {
    if (has(*written, part)) return false;
    (*written)[part / 32] |= 1u << (part % 32);
  } else if (most != kNoLimit || written->back() < (repeats_count_once ? std::min(least, 1u) : least)) {
    // otherwise, all further numbers are equivalent
    written->back()++;
  }
  // without an upper bound, each part only helps
  return most == kNoLimit || feasible(*written);
}

namespace {

/// Named groups become rules, and all around them terminals.
Expr add(Grammar& grammar, regex::Part& part) {
  using regex::Part;
  if (part.kind == Part::Kind::kRegex) return grammar.regex(std::move(*part.regex));
  std::vector<Expr> parts;
  for (Part& below : part.parts) parts.push_back(add(grammar, below));
  if (part.kind == Part::Kind::kSequence) return grammar.sequence(parts);
  if (part.kind == Part::Kind::kChoice) return grammar.choice(parts);
  const Rule rule = grammar.declare(part.name);
  grammar.define(rule, parts.front());
  if (part.kind == Part::Kind::kRepeat) return grammar.repeat(grammar.call(rule), part.min, part.max);
  grammar.capture(rule, {part.name, {}, nullptr, nullptr});
  return grammar.call(rule);
}

}  // namespace

Parser make_or_fail(regex::Part pattern) {
  Grammar grammar;
  const Rule start = grammar.declare("start");
  grammar.define(start, add(grammar, pattern));
  return make_or_fail(std::move(grammar), start);
}

}  // namespace aici::cfg
