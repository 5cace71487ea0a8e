#include <algorithm>

#include "aici/cfg/parser.hpp"
#include "aici/vocabulary.hpp"

namespace aici::cfg {

/// Finds the nodes at which rare characters end, by one pass over the nodes that have bytes from 0x80 on below them.
void Engine::find_rare_nodes() {
  rare_known_ = true;
  const std::vector<std::uint32_t>& rare = grammar_.terminals().rare_characters();
  if (rare.empty()) return;
  ByteSet last;
  for (const std::uint32_t character : rare) last.add(static_cast<std::uint8_t>(0x80 | (character & 63)));
  const Vocabulary& vocab = vocabulary();
  std::uint8_t path[256] = {};
  for (std::uint32_t i = 1; i < vocab.num_nodes();) {
    const TrieNode& node = vocab.nodes()[i];
    if ((node.signature & (kWellFormedUtf8 | kOtherBytes)) == 0) {
      i += node.subtree_size();
      continue;
    }
    const unsigned depth = node.depth();
    path[depth] = node.byte();
    if (node.byte() >= 0x80 && last.has(node.byte())) {
      std::uint32_t character = node.byte() & 63u, shift = 0;
      unsigned at = depth;
      while (at > 1 && (path[at] & 0xC0) == 0x80 && shift < 18) {
        shift += 6, at--;
        character |= static_cast<std::uint32_t>(path[at] & (0x3F >> (path[at] >= 0xC0 ? shift / 6 : 0))) << shift;
      }
      if (std::ranges::binary_search(rare, character)) rare_nodes_.push_back(i);
    }
    i++;
  }
}

}  // namespace aici::cfg
