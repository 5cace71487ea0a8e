// choices.hpp - a recognizer of one of several fixed texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aici/types.hpp"

namespace aici {

/// A functional recognizer (functional.hpp) of one of `texts`. Its states are the nodes of their trie. `texts` must
/// have at least one element; an empty text allows an empty output, too.
class Choices {
 public:
  using State = std::uint32_t;

  explicit Choices(std::span<const std::string> texts);

  State initial() const { return 0; }
  State append(State state, std::uint8_t byte) const { return child(state, byte); }
  bool byte_allowed(State state, std::uint8_t byte) const { return child(state, byte) != kNone; }
  bool dead(State state) const { return state == kNone; }
  bool special_allowed(State state, SpecialToken token) const {
    return token == SpecialToken::eos && nodes_[state].may_end;
  }
  bool forced_byte(State state, std::uint8_t* byte) const;
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  static constexpr State kNone = 0xffffffff;
  struct Node {
    State first_child = kNone, sibling = kNone;
    std::uint8_t byte = 0;  ///< on the edge into this node
    bool may_end = false;
  };

  State child(State state, std::uint8_t byte) const {
    State node = nodes_[state].first_child;
    while (node != kNone && nodes_[node].byte != byte) node = nodes_[node].sibling;
    return node;
  }
  void add(const std::string& text);

  std::vector<std::string> texts_;
  std::vector<Node> nodes_;
};

}  // namespace aici
