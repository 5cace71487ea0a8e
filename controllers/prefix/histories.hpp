// histories.hpp - what trials have learned: how likely the prefix can still become after a history, at most.
#pragma once

#include <cstdint>
#include <vector>

#include "aici/types.hpp"

/// A tree of histories that spell a part of the prefix. A trial goes down in it from the empty history. Each has a
/// bound: 1 until its mass is known, the probability of all tokens that go with the prefix after it; then that mass,
/// less what the bounds of those below it take off.
class Histories {
 public:
  struct Child {
    aici::TokenId token;
    double chance;  ///< the probability of the token
    double bound;
    std::uint32_t node;
  };

  Histories() : nodes_(1), path_(1) {}

  bool at_start() const { return path_.size() == 1; }
  /// Is the mass of the present history known?
  bool known() const { return here().mass >= 0; }
  void learn(double mass) { here().mass = mass; }
  double mass() const { return here().mass; }
  /// The tokens after it of which more is known than their chance.
  const std::vector<Child>& children() const { return here().children; }

  /// Goes on by a token of this probability, which spells a part of what is left.
  void descend(aici::TokenId token, double chance) {
    std::vector<Child>& children = here().children;
    for (const Child& child : children)
      if (child.token == token) return path_.push_back(child.node);
    const auto node = static_cast<std::uint32_t>(nodes_.size());
    children.push_back({token, chance, 1, node});
    nodes_.emplace_back();
    path_.push_back(node);
  }

  /// The trial is over: all histories that it went through hear of what it learned.
  void back_up() {
    for (; path_.size() > 1; path_.pop_back()) {
      const Node& below = here();
      if (below.mass < 0) continue;
      double bound = below.mass;
      for (const Child& child : below.children) bound -= child.chance * (1 - child.bound);
      for (Child& child : nodes_[path_[path_.size() - 2]].children)
        if (child.node == path_.back()) child.bound = bound > 0 ? bound : 0;
    }
  }

 private:
  struct Node {
    double mass = -1;
    std::vector<Child> children;
  };

  Node& here() { return nodes_[path_.back()]; }
  const Node& here() const { return nodes_[path_.back()]; }

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> path_;  ///< the histories of the present trial, the empty one first
};
