#include "aici/choices.hpp"

namespace aici {

Choices::Choices(std::span<const std::string> texts) : texts_(texts.begin(), texts.end()), nodes_(1) {
  for (const std::string& text : texts_) add(text);
}

void Choices::add(const std::string& text) {
  State at = 0;
  for (char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    State next = child(at, byte);
    if (next == kNone) {
      next = static_cast<State>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[at].first_child, .byte = byte});
      nodes_[at].first_child = next;
    }
    at = next;
  }
  nodes_[at].may_end = true;
}

bool Choices::forced_byte(State state, std::uint8_t* byte) const {
  const Node& node = nodes_[state];
  if (node.may_end || node.first_child == kNone || nodes_[node.first_child].sibling != kNone) return false;
  *byte = nodes_[node.first_child].byte;
  return true;
}

}  // namespace aici
