// Removes left recursion from the automata of a grammar.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "aici/detail/cfg/network.hpp"

namespace aici::cfg {

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
