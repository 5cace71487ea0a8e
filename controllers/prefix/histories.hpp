// histories.hpp - upper bounds, learned by trials, on the probability of the prefix after each history.
#pragma once

#include <cstdint>
#include <vector>

#include "aici/types.hpp"

/// A tree of histories, each of which spells a part of the prefix. A trial descends from the empty history. The mass of
/// a history is the total probability of the next tokens that agree with the prefix. Each history has a bound: 1 until
/// its mass is known, then its mass minus the reductions by the bounds of its children.
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
  /// Returns whether the mass of the current history is known.
  bool known() const { return here().mass >= 0; }
  void learn(double mass) { here().mass = mass; }
  double mass() const { return here().mass; }
  /// Returns the next tokens that trials have visited.
  const std::vector<Child>& children() const { return here().children; }

  /// Descends by a token with this probability, which spells a part of the rest of the prefix.
  void descend(aici::TokenId token, double chance) {
    std::vector<Child>& children = here().children;
    for (const Child& child : children)
      if (child.token == token) return path_.push_back(child.node);
    const auto node = static_cast<std::uint32_t>(nodes_.size());
    children.push_back({token, chance, 1, node});
    nodes_.emplace_back();
    path_.push_back(node);
  }

  /// Ends the trial and updates the bounds of all histories on its path.
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
  std::vector<std::uint32_t> path_;  ///< the histories of the current trial, the empty one first
};
