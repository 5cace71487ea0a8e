#include "aici/detail/cfg/network.hpp"

#include <algorithm>
#include <optional>
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
    const std::size_t orders = parts_.size();
    enter(rule);
    entries_[rule] = build(grammar.body(rule), kEnd, 0);
    const auto need = [&](Rule called) {
      if (entries_[called] != kUnknown) return;
      entries_[called] = kNowhere;
      left.push_back(called);
    };
    for (std::size_t i = orders; i < parts_.size(); i++)
      for (const AnyOrder::Part& part : parts_[i].parts) need(part.rule);
    for (std::size_t i = before; i < places_.size(); i++)
      if (places_[i].kind == Node::Kind::kCall) need(places_[i].label);
  }
  for (Place& entry : entries_)
    if (entry == kUnknown) entry = kNowhere;
  if (problem_ == nullptr) remove_left_recursion();
  grammar_ = nullptr;
  built_places_ = places_.size(), built_edges_ = edges_.size(), built_written_ = written_.size();
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

/// Returns the place before or after a part, where these parts have been written.
Place Network::add_set(Node::Kind kind, std::uint32_t order, const AnyOrder::Written& written, bool longest) {
  Hasher hash;
  hash.add(static_cast<std::uint32_t>(kind)), hash.add(order), hash.add(longest);
  for (const std::uint32_t word : written) hash.add(word);
  const auto same = [&](Place i) {
    const Node& node = places_[i];
    return node.kind == kind && node.label == order && node.longest == longest &&
           std::equal(written.begin(), written.end(), written_.begin() + node.a);
  };
  if (const std::uint32_t known = set_ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  const Place place = open();
  if (problem_ != nullptr) return kNowhere;
  places_[place] = {kind, order, static_cast<Place>(written_.size()), kNowhere, longest};
  written_.insert(written_.end(), written.begin(), written.end());
  set_ids_.insert(hash.bits(), place);
  return place;
}

AnyOrder::Written Network::written(const Node& node) const {
  const auto first = written_.begin() + node.a;
  return {first, first + static_cast<std::ptrdiff_t>(parts_[orders_[node.label].parts].none().size())};
}

void Network::keep_only(std::span<Place> kept) {
  struct Set {
    Node node;
    AnyOrder::Written written;
  };
  std::vector<Set> sets;
  for (const Place place : kept) sets.push_back({places_[place], written(places_[place])});
  places_.resize(built_places_), exits_.resize(built_places_), written_.resize(built_written_);
  edges_.resize(built_edges_);
  for (Exits& exits : exits_)
    if (exits.first != kUnknown && exits.last > built_edges_) exits.first = kUnknown;
  set_ids_.clear(), seen_at_.clear();
  problem_ = nullptr;
  for (std::size_t i = 0; i < kept.size(); i++)
    kept[i] = add_set(sets[i].node.kind, sets[i].node.label, sets[i].written, sets[i].node.longest);
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
    case Kind::kAnyOrder: {
      const std::optional<AnyOrder> order = grammar_->possible(grammar_->order(node.a), productive_);
      if (!order) return kNowhere;
      parts_.push_back(*order);
      parts_.back().separator = grammar_->node(order->separator).a;
      orders_.push_back({static_cast<std::uint32_t>(parts_.size() - 1), next});
      return add_set(Node::Kind::kBeforePart, static_cast<std::uint32_t>(orders_.size() - 1), order->none(), longest_);
    }
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
  const auto visit = [&](Place next) {
    if (next >= seen_at_.size()) seen_at_.resize(places_.size());
    if (seen_at_[next] != place) seen_at_[next] = place, seen.push_back(next);
  };
  visit(place);
  std::vector<Edge> terminals, calls;
  bool ends = false;
  for (std::size_t i = 0; i < seen.size(); i++) {
    const Node node = places_[seen[i]];
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
      case Node::Kind::kBeforePart: {
        const AnyOrder& order = parts_[orders_[node.label].parts];
        const AnyOrder::Written before = written(node);
        const auto [first, last] = order.next(before);
        for (std::size_t part = first; part < last; part++) {
          AnyOrder::Written after = before;
          if (!order.add(part, &after)) continue;
          const Rule rule = order.parts[part].rule;
          const Place next = add_set(Node::Kind::kAfterPart, node.label, after, node.longest);
          calls.push_back({rule, next});
          if (empty_rules_[rule]) visit(next);
        }
        break;
      }
      case Node::Kind::kAfterPart: {
        const AnyOrder& order = parts_[orders_[node.label].parts];
        const AnyOrder::Written before = written(node);
        if (order.complete(before)) visit(orders_[node.label].next);
        bool more = false;
        const auto [first, last] = order.next(before);
        for (std::size_t part = first; !more && part < last; part++) {
          AnyOrder::Written after = before;
          more = order.add(part, &after);
        }
        if (more)
          terminals.push_back({order.separator, add_set(Node::Kind::kBeforePart, node.label, before, node.longest)});
        break;
      }
    }
  }
  store(place, std::move(terminals), std::move(calls), ends);
}

}  // namespace aici::cfg
