// Finds the nodes of the vocabulary's trie at which rare characters end.
#include <algorithm>
#include <string>

#include "../regex/unicode.hpp"
#include "aici/cfg/parser.hpp"
#include "aici/vocabulary.hpp"

namespace aici::cfg {

namespace {

/// A set of characters, by their bytes in UTF-8 as a number. Most numbers that are not in it are found out at once.
class Characters {
 public:
  explicit Characters(const std::vector<std::uint32_t>& codepoints) {
    for (const std::uint32_t codepoint : codepoints) {
      std::string text;
      regex::encode_utf8(codepoint, &text);
      std::uint32_t number = 0;
      for (const char c : text) number = number << 8 | static_cast<std::uint8_t>(c);
      numbers_.push_back(number);
      maybe_[slot(number)] = true;
    }
    std::ranges::sort(numbers_);
  }
  bool has(std::uint32_t number) const { return maybe_[slot(number)] && std::ranges::binary_search(numbers_, number); }

 private:
  static std::uint32_t slot(std::uint32_t number) { return number * 0x9E3779B1u >> 22; }

  bool maybe_[1 << 10] = {};
  std::vector<std::uint32_t> numbers_;
};

}  // namespace

/// Finds the nodes at which rare characters end, by one pass over the nodes that have bytes from 0x80 on below them.
void Engine::find_rare_nodes() {
  rare_known_ = true;
  if (grammar_.terminals().rare_characters().empty()) return;
  const Characters rare(grammar_.terminals().rare_characters());
  const Vocabulary& vocab = vocabulary();
  std::uint32_t path[256] = {};  // the bytes of the character that a node is in
  const TrieNode* const nodes = vocab.nodes();
  for (std::uint32_t i = 1; i < vocab.num_nodes();) {
    const TrieNode& node = nodes[i];
    if ((node.signature & (kWellFormedUtf8 | kOtherBytes)) == 0) {
      i += node.subtree_size();
      continue;
    }
    const unsigned depth = node.depth();
    const std::uint32_t byte = node.byte(), number = byte < 0xC0 ? path[depth - 1] << 8 | byte : byte;
    path[depth] = number;
    if (rare.has(number)) rare_nodes_.push_back(i);
    i++;
  }
}

}  // namespace aici::cfg
