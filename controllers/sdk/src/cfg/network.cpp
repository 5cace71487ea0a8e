#include "aici/detail/cfg/network.hpp"

#include <algorithm>
#include <utility>

namespace aici::cfg {

using Kind = Grammar::Node::Kind;

namespace {

/// Returns the parts of nested sequences or choices, in order.
std::vector<Expr> parts_of(const Grammar& grammar, Expr expr, Kind kind) {
  std::vector<Expr> parts, left{expr};
  while (!left.empty()) {
    const Expr one = left.back();
    left.pop_back();
    if (grammar.node(one).kind == kind)
      left.push_back(grammar.node(one).b), left.push_back(grammar.node(one).a);
    else
      parts.push_back(one);
  }
  return parts;
}

}  // namespace

const char* Network::build(const Grammar& grammar, Rule start, const Limits& limits) {
  grammar_ = &grammar;
  limits_ = limits;
  productive_ = grammar.productive();
  nullable_ = grammar.nullable();
  if (!productive_[grammar.body(start)]) return "the grammar matches no text";
  enter(start);
  places_ = {{Node::Kind::kEnd, 0, kNowhere, kNowhere, longest_}, {Node::Kind::kNowhere}};
  exits_ = {{0, 0, 0, true}, {0, 0, 0, false}};
  entries_.assign(grammar.num_rules(), kUnknown);
  empty_rules_.resize(grammar.num_rules());
  is_array_.resize(grammar.num_rules());
  for (Rule rule = 0; rule < entries_.size(); rule++) {
    empty_rules_[rule] = nullable_[grammar.body(rule)];
    is_array_[rule] = grammar.items_differ(rule);
    has_arrays_ = has_arrays_ || is_array_[rule];
  }
  start_ = add({Node::Kind::kCall, start, kEnd});
  // each called rule once
  entries_[start] = kNowhere;
  std::vector<Rule> left{start};
  while (!left.empty() && problem_ == nullptr) {
    const Rule rule = left.back();
    left.pop_back();
    const std::size_t before = places_.size();
    enter(rule);
    entries_[rule] = build(grammar.body(rule), kEnd, 0);
    for (std::size_t i = before; i < places_.size(); i++)
      if (places_[i].kind == Node::Kind::kCall && entries_[places_[i].label] == kUnknown) {
        entries_[places_[i].label] = kNowhere;
        left.push_back(places_[i].label);
      }
  }
  for (Place& entry : entries_)
    if (entry == kUnknown) entry = kNowhere;
  if (problem_ == nullptr) remove_left_recursion();
  grammar_ = nullptr;
  return problem_;
}

Place Network::open() {
  if (places_.size() >= limits_.places) problem_ = "the grammar is too large with its repetitions expanded";
  if (problem_ != nullptr) return kNowhere;
  places_.push_back({Node::Kind::kNowhere, 0, kNowhere, kNowhere, longest_});
  exits_.push_back({kUnknown, 0, 0, false});
  return static_cast<Place>(places_.size() - 1);
}

Place Network::add(Node node) {
  node.longest = longest_;
  Hasher hash;
  hash.add(node.longest);
  hash.add(static_cast<std::uint32_t>(node.kind)), hash.add(node.label), hash.add(node.a), hash.add(node.b);
  const auto same = [&](std::uint32_t i) { return places_[i] == node; };
  if (const std::uint32_t known = ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  const Place place = open();
  if (problem_ != nullptr) return kNowhere;
  places_[place] = node;
  ids_.insert(hash.bits(), place);
  return place;
}

Place Network::split(Place a, Place b) {
  if (a == b || b == kNowhere) return a;
  return a == kNowhere ? b : add({Node::Kind::kSplit, 0, a, b});
}

Place Network::build(Expr expr, Place next, std::uint32_t depth) {
  if (depth > limits_.nesting) problem_ = "the grammar has groups that are nested too deeply";
  if (problem_ != nullptr || next == kNowhere || !productive_[expr]) return kNowhere;
  const Grammar::Node& node = grammar_->node(expr);
  switch (node.kind) {
    case Kind::kNever:
      return kNowhere;
    case Kind::kEmpty:
      return next;
    case Kind::kTerminal:
      return add({Node::Kind::kTerminal, node.a, next});
    case Kind::kCall:
      return add({Node::Kind::kCall, node.a, next});
    case Kind::kRepeat:
      return build_repeat(node, next, depth);
    case Kind::kSequence: {
      const std::vector<Expr> parts = parts_of(*grammar_, expr, Kind::kSequence);
      for (std::size_t i = parts.size(); i-- > 0;) next = build(parts[i], next, depth + 1);
      return next;
    }
    case Kind::kChoice: {
      const std::vector<Expr> parts = parts_of(*grammar_, expr, Kind::kChoice);
      Place all = kNowhere;
      for (std::size_t i = parts.size(); i-- > 0;) all = split(build(parts[i], next, depth + 1), all);
      return all;
    }
  }
  return kNowhere;
}

Place Network::build_repeat(const Grammar::Node& node, Place next, std::uint32_t depth) {
  Place now = next;
  std::uint32_t least = node.least;
  if (node.most == kNoLimit) {
    const Place loop = open();
    if (problem_ != nullptr) return kNowhere;
    const Place body = build(node.a, loop, depth + 1);
    places_[loop] = {Node::Kind::kSplit, 0, body, next, longest_};
    now = loop;
    if (least > 0) now = body, least--;
  } else {
    for (std::uint32_t i = node.least; i < node.most && problem_ == nullptr; i++) {
      const Place body = build(node.a, now, depth + 1);
      if (body == kNowhere) break;
      now = split(body, next);
    }
  }
  for (; least > 0 && problem_ == nullptr && now != kNowhere; least--) {
    const Place before = build(node.a, now, depth + 1);
    if (before == now) break;  // it matches only the empty text
    now = before;
  }
  return now;
}

void Network::store(Place place, std::vector<Edge> terminals, std::vector<Edge> calls, bool ends) {
  const auto same = [](const Edge& a, const Edge& b) { return a.label == b.label && a.next == b.next; };
  const auto less = [](const Edge& a, const Edge& b) { return a.label != b.label ? a.label < b.label : a.next < b.next; };
  for (std::vector<Edge>* edges : {&terminals, &calls}) {
    std::ranges::sort(*edges, less);
    edges->erase(std::unique(edges->begin(), edges->end(), same), edges->end());
  }
  const auto first = static_cast<std::uint32_t>(edges_.size());
  edges_.insert(edges_.end(), terminals.begin(), terminals.end());
  const auto middle = static_cast<std::uint32_t>(edges_.size());
  edges_.insert(edges_.end(), calls.begin(), calls.end());
  exits_[place] = {first, middle, static_cast<std::uint32_t>(edges_.size()), ends};
}

void Network::find_exits(Place place) {
  std::vector<Place> seen;
  seen_at_.resize(places_.size());
  const auto visit = [&](Place next) {
    if (seen_at_[next] != place) seen_at_[next] = place, seen.push_back(next);
  };
  visit(place);
  std::vector<Edge> terminals, calls;
  bool ends = false;
  for (std::size_t i = 0; i < seen.size(); i++) {
    const Node& node = places_[seen[i]];
    switch (node.kind) {
      case Node::Kind::kEnd:
        ends = true;
        break;
      case Node::Kind::kNowhere:
        break;
      case Node::Kind::kTerminal:
        terminals.push_back({node.label, node.a});
        break;
      case Node::Kind::kCall:
        calls.push_back({node.label, node.a});
        if (empty_rules_[node.label]) visit(node.a);
        break;
      case Node::Kind::kSplit:
        visit(node.b), visit(node.a);
        break;
    }
  }
  store(place, std::move(terminals), std::move(calls), ends);
}

}  // namespace aici::cfg
