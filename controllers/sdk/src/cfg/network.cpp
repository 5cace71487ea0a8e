// Builds the automata of a grammar that call each other, and removes their left recursion.
#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "aici/detail/cfg/columns.hpp"

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
    for (std::size_t i = orders; i < parts_.size(); i++) {
      need(parts_[i].separator);
      for (const AnyOrder::Part& part : parts_[i].parts) need(part.rule);
    }
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
      orders_.push_back({static_cast<std::uint32_t>(parts_.size() - 1), next});
      return add_set(Node::Kind::kBeforePart, static_cast<std::uint32_t>(orders_.size() - 1), order->none(), longest_);
    }
    case Kind::kSequence: {
      const std::vector<Expr> parts = parts_of(*grammar_, expr, Kind::kSequence);
      for (std::size_t i = parts.size(); i-- > 0;) next = build(parts[i], next, depth + 1);
      return next;
    }
    case Kind::kChoice: {
      if (grammar_->node(node.a).kind != Kind::kChoice && grammar_->node(node.b).kind != Kind::kChoice) {  // the usual case
        const Place last = build(node.b, next, depth + 1);
        return split(build(node.a, next, depth + 1), last);
      }
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
          calls.push_back({order.separator, add_set(Node::Kind::kBeforePart, node.label, before, node.longest)});
        break;
      }
    }
  }
  store(place, std::move(terminals), std::move(calls), ends);
}

/// Copies automata, with another place as their end.
class Network::Copies {
 public:
  explicit Copies(Network* network) : network_(*network) {}

  Place get(Place place, Place end) {
    const Place made = find(place, end);
    while (!left_.empty()) {
      const auto [from, to, at_end] = left_.back();
      left_.pop_back();
      Node node = network_.places_[from];
      if (node.kind == Node::Kind::kNowhere) continue;
      if (is_set(node.kind)) {
        const Order order = network_.orders_[node.label];
        node.label = static_cast<std::uint32_t>(network_.orders_.size());
        network_.orders_.push_back({order.parts, find(order.next, at_end)});
      } else {
        node.a = find(node.a, at_end);
      }
      if (node.kind == Node::Kind::kSplit) node.b = find(node.b, at_end);
      network_.places_[to] = node;
    }
    return made;
  }

 private:
  struct Task {
    Place from, to, end;
  };

  Place find(Place place, Place end) {
    if (place == kEnd) return end;
    if (place == kNowhere) return kNowhere;
    const std::uint64_t key = static_cast<std::uint64_t>(place) << 32 | end;
    const auto [at, is_new] = known_.try_emplace(key, kNowhere);
    if (is_new) {
      at->second = network_.open();
      if (at->second != kNowhere) left_.push_back({place, at->second, end});
    }
    return at->second;
  }

  Network& network_;
  std::unordered_map<std::uint64_t, Place> known_;
  std::vector<Task> left_;
};

/// Makes an open place lead to all of `targets`.
void Network::fill(Place place, std::span<const Place> targets) {
  Place all = kNowhere;
  for (const Place target : targets) all = split(target, all);
  places_[place] = {Node::Kind::kSplit, 0, all, kNowhere, longest_};
}

/// Rewrites rules each of which begins with a call of each other, directly or through other members. A text of rule A
/// begins with a beginning of some member X that is not such a call. Where X ends, it was the first part of a text of a
/// member Y that begins with X, and Y continues. This repeats until the completed member is A.
void Network::rewrite(std::span<const Rule> members) {
  const auto member = [&](Rule rule) { return std::ranges::find(members, rule) != members.end(); };
  struct Begin {
    Rule rule;
    Edge edge;
  };
  enter(members[0]);
  std::vector<Begin> terminals, calls, again;
  for (const Rule rule : members) {
    const Exits entry = this->entry(rule);
    for (std::uint32_t i = entry.first; i < entry.calls; i++) terminals.push_back({rule, edges_[i]});
    for (std::uint32_t i = entry.calls; i < entry.last; i++)
      (member(edges_[i].label) ? again : calls).push_back({rule, edges_[i]});
  }
  std::vector<Place> entries;
  for (const Rule rule : members) {
    Copies copies(this);
    std::unordered_map<Rule, Place> ends;
    for (const Rule other : members) ends[other] = open();
    for (const Rule other : members) {
      std::vector<Place> targets;
      if (other == rule) targets.push_back(kEnd);
      for (const Begin& it : again)
        if (it.edge.label == other) targets.push_back(copies.get(it.edge.next, ends[it.rule]));
      if (problem_ != nullptr) return;
      fill(ends[other], targets);
    }
    std::vector<Edge> at_terminals, at_calls;
    for (const Begin& it : terminals)
      at_terminals.push_back({it.edge.label, copies.get(it.edge.next, ends[it.rule])});
    for (const Begin& it : calls) at_calls.push_back({it.edge.label, copies.get(it.edge.next, ends[it.rule])});
    const Place entry = open();
    if (problem_ != nullptr) return;
    store(entry, std::move(at_terminals), std::move(at_calls), false);
    entries.push_back(entry);
  }
  for (std::size_t i = 0; i < members.size(); i++) entries_[members[i]] = entries[i];
}

/// Tarjan's algorithm on the calls at the start of rules. It completes the rules with which a rule begins before the
/// rule itself, so its order is the order of the ranks, the highest first.
void Network::remove_left_recursion() {
  constexpr std::uint32_t kUnseen = 0xffffffff;
  const std::size_t count = entries_.size();
  std::vector<std::uint32_t> index(count, kUnseen), low(count);
  std::vector<bool> on_stack(count);
  std::vector<Rule> stack, order;
  struct Frame {
    Rule rule;
    std::uint32_t edge;
  };
  std::uint32_t next = 0;
  for (Rule root = 0; root < count && problem_ == nullptr; root++) {
    if (index[root] != kUnseen || entries_[root] == kNowhere) continue;
    std::vector<Frame> frames{{root, 0}};
    while (!frames.empty() && problem_ == nullptr) {
      const auto [rule, at] = frames.back();
      if (at == 0) index[rule] = low[rule] = next++, stack.push_back(rule), on_stack[rule] = true;
      const Exits entry = this->entry(rule);
      if (at < entry.last - entry.calls) {
        const Rule called = edges_[entry.calls + at].label;
        frames.back().edge++;
        if (index[called] == kUnseen)
          frames.push_back({called, 0});
        else if (on_stack[called])
          low[rule] = std::min(low[rule], index[called]);
        continue;
      }
      frames.pop_back();
      if (!frames.empty()) low[frames.back().rule] = std::min(low[frames.back().rule], low[rule]);
      if (low[rule] != index[rule]) continue;
      std::vector<Rule> members;
      do {
        members.push_back(stack.back());
        on_stack[stack.back()] = false;
        stack.pop_back();
      } while (members.back() != rule);
      bool calls_itself = false;
      for (std::uint32_t i = entry.calls; i < entry.last; i++) calls_itself |= edges_[i].label == rule;
      order.insert(order.end(), members.begin(), members.end());
      if (members.size() > 1 || calls_itself) rewrite(members);
    }
  }
  ranks_.assign(count, 0);
  by_rank_.assign(order.rbegin(), order.rend());
  for (std::uint32_t rank = 0; rank < by_rank_.size(); rank++) ranks_[by_rank_[rank]] = rank;
}

}  // namespace aici::cfg
