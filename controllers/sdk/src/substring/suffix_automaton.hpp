// suffix_automaton.hpp - builds the suffix automaton of a text, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace aici::detail {

/// The algorithm of Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985). A node stands
/// for the strings that end at the same positions of the text. Node 0 is the root. A single edge is stored in its
/// node; several edges are stored in a block whose size is the next power of two.
class SuffixAutomaton {
 public:
  explicit SuffixAutomaton(std::string_view text);

  struct Node {
    std::uint32_t length;     ///< of the node's longest string
    std::uint32_t link = 0;   ///< the node of its longest suffix that ends at more positions
    std::uint32_t edges = 0;  ///< the target of the only edge, or the block
    std::uint16_t count = 0;  ///< number of edges
    std::uint8_t label = 0;   ///< label of the only edge
    std::uint8_t order = 0;   ///< order of the block
  };

  Node& node(std::uint32_t number) { return nodes_[number >> kChunkBits][number & kInChunk]; }
  /// An upper bound for the numbers of nodes. Not every number below it is in use.
  std::uint32_t most_nodes() const { return next_; }
  /// Calls visit(number, node) for each node, the root first.
  template <class Visit>
  void each_node(Visit visit) {
    for (std::uint32_t i = 0; i < next_; i++)
      if ((i & kInChunk) < kNodesInChunk) visit(i, node(i));
  }
  /// Calls visit(label, target) for each edge.
  template <class Visit>
  void each_edge(const Node& node, Visit visit) const {
    if (node.count == 1) visit(node.label, node.edges);
    if (node.count < 2) return;
    const std::uint32_t* targets = block(node);
    const std::uint8_t* labels = labels_of(targets, node.order);
    for (std::uint32_t i = 0; i < node.count; i++) visit(labels[i], targets[i]);
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;
  /// Memory is allocated in chunks of 64 KiB, minus the allocator's overhead, which would double the size. Nothing is
  /// ever moved, and little is unused. A number consists of the number of a chunk and the index of a node, or of a
  /// word, in it.
  static constexpr std::uint32_t kChunkBits = 12, kInChunk = (1 << kChunkBits) - 1, kNodesInChunk = kInChunk - 3;
  static constexpr std::uint32_t kWordBits = 14, kInWords = (1 << kWordBits) - 1, kWordsInChunk = kInWords - 15;
  /// Number of words after the last block, which are only read.
  static constexpr std::uint32_t kPadding = 2;

  /// Returns the number of words of a block of 2^order edges: the targets, then the labels, four per word.
  static constexpr std::uint32_t block_words(std::uint8_t order) {
    return (1u << order) + ((1u << order) + 3) / 4;
  }
  static std::uint8_t* labels_of(std::uint32_t* targets, std::uint8_t order) {
    return reinterpret_cast<std::uint8_t*>(targets + (1u << order));
  }
  static const std::uint8_t* labels_of(const std::uint32_t* targets, std::uint8_t order) {
    return labels_of(const_cast<std::uint32_t*>(targets), order);
  }
  std::uint32_t* words(std::uint32_t at) { return chunks_[at >> kWordBits].get() + (at & kInWords); }
  std::uint32_t* block(const Node& node) { return words(node.edges); }
  const std::uint32_t* block(const Node& node) const {
    return const_cast<SuffixAutomaton*>(this)->block(node);
  }

  std::uint32_t add_node(const Node& node);
  void append(std::uint8_t byte);
  std::uint32_t split(std::uint32_t parent, std::uint8_t byte, std::uint32_t whole);
  /// Returns the target of an edge, or null.
  std::uint32_t* edge(Node& node, std::uint8_t byte);
  void add_edge(Node& node, std::uint8_t byte, std::uint32_t target);
  std::uint32_t take_block(std::uint8_t order);

  std::vector<std::unique_ptr<Node[]>> nodes_;
  std::uint32_t next_ = 0;
  std::vector<std::unique_ptr<std::uint32_t[]>> chunks_;
  std::uint32_t used_ = kWordsInChunk;  ///< words used in the last chunk
  std::uint32_t free_[9] = {kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone, kNone};  ///< free blocks by order
  std::uint32_t last_ = 0;
};

}  // namespace aici::detail
