#include "suffix_automaton.hpp"

#include <cstring>

#include "aici/detail/byte_search.hpp"

namespace aici::detail {

SuffixAutomaton::SuffixAutomaton(std::string_view text) {
  add_node({.length = 0, .link = kNone});
  for (const char c : text) append(static_cast<std::uint8_t>(c));
}

std::uint32_t SuffixAutomaton::add_node(const Node& added) {
  if ((next_ & kInChunk) == kNodesInChunk) next_ = (next_ | kInChunk) + 1;
  if (next_ >> kChunkBits == nodes_.size())
    nodes_.push_back(std::make_unique_for_overwrite<Node[]>(kNodesInChunk));
  node(next_) = added;
  return next_++;
}

/// Extends the text by one byte.
void SuffixAutomaton::append(std::uint8_t byte) {
  const std::uint32_t added = add_node({.length = node(last_).length + 1});
  std::uint32_t at = last_, *known = nullptr;
  last_ = added;
  for (; at != kNone; at = node(at).link) {
    known = edge(node(at), byte);
    if (known != nullptr) break;
    add_edge(node(at), byte, added);
  }
  if (known != nullptr)
    node(added).link = node(*known).length == node(at).length + 1 ? *known : split(at, byte, *known);
}

/// Moves strings of the node `whole` to a new node: those that now end at one more position. Edges from `parent` and
/// its suffixes lead to them.
std::uint32_t SuffixAutomaton::split(std::uint32_t parent, std::uint8_t byte, std::uint32_t whole) {
  const std::uint32_t part = add_node(node(whole));
  Node& copy = node(part);
  copy.length = node(parent).length + 1;
  if (copy.count > 1) {
    copy.edges = take_block(copy.order);
    std::memcpy(block(copy), block(node(whole)), 4 * block_words(copy.order));
  }
  node(whole).link = part;
  for (; parent != kNone; parent = node(parent).link) {
    std::uint32_t* target = edge(node(parent), byte);
    if (*target != whole) break;
    *target = part;
  }
  return part;
}

std::uint32_t* SuffixAutomaton::edge(Node& node, std::uint8_t byte) {
  if (node.count < 2) return node.count == 1 && node.label == byte ? &node.edges : nullptr;
  std::uint32_t* targets = block(node);
  const std::uint32_t at = find_byte(labels_of(targets, node.order), node.count, byte);
  return at != node.count ? targets + at : nullptr;
}

void SuffixAutomaton::add_edge(Node& node, std::uint8_t byte, std::uint32_t target) {
  const std::uint32_t count = node.count++;
  if (count == 0) {
    node.label = byte;
    node.edges = target;
    return;
  }
  if (count == 1 || count == 1u << node.order) {
    const Node old = node;
    node.order = count == 1 ? 1 : static_cast<std::uint8_t>(old.order + 1);
    node.edges = take_block(node.order);
    std::uint32_t* targets = block(node);
    std::uint8_t* labels = labels_of(targets, node.order);
    if (count == 1) {
      targets[0] = old.edges;
      labels[0] = old.label;
    } else {
      std::uint32_t* before = block(old);
      std::memcpy(targets, before, 4 * count);
      std::memcpy(labels, labels_of(before, old.order), count);
      *before = free_[old.order];
      free_[old.order] = old.edges;
    }
  }
  std::uint32_t* targets = block(node);
  targets[count] = target;
  labels_of(targets, node.order)[count] = byte;
}

std::uint32_t SuffixAutomaton::take_block(std::uint8_t order) {
  if (free_[order] != kNone) {
    const std::uint32_t at = free_[order];
    free_[order] = *words(at);
    return at;
  }
  if (used_ + block_words(order) > kWordsInChunk - kPadding) {
    chunks_.push_back(std::make_unique_for_overwrite<std::uint32_t[]>(kWordsInChunk));
    used_ = 0;
  }
  const auto at = static_cast<std::uint32_t>((chunks_.size() - 1) << kWordBits) + used_;
  used_ += block_words(order);
  return at;
}

}  // namespace aici::detail
