#include "aici/detail/inner.hpp"

#include <cstring>
#include <utility>

namespace aici {

const std::vector<Exit>* InnerMasks::load(std::uint32_t inner, TokenSet& out) {
  for (const Known& known : known_) {
    if (known.inner != inner) continue;
    const Answer* answer = masks_.find(inner, out);
    if (answer == nullptr) return nullptr;
    if (answer->words.data() != out.data()) std::memcpy(out.data(), answer->words.data(), answer->words.size_bytes());
    return &known.exits;
  }
  return nullptr;
}

void InnerMasks::put(std::uint32_t inner, const TokenSet& mask, std::vector<Exit> exits) {
  if (exits.size() > kMaxExits) return;
  if (known_.size() >= kMaxKnown) clear();
  std::erase_if(known_, [&](const Known& known) { return known.inner == inner; });
  known_.push_back({inner, std::move(exits)});
  masks_.put(inner, {Answer::Kind::mask, mask.words()});
}

const TokenSet& InnerMasks::subtree(const TrieNode* node) {
  for (const auto& [known, tokens] : subtrees_)
    if (known == node) return tokens;
  if (subtrees_.size() == kMaxSubtrees) subtrees_.erase(subtrees_.begin());
  TokenSet& tokens = subtrees_.emplace_back(node, TokenSet()).second;
  const TokenId* const order = vocabulary().order();
  for (std::uint32_t i = node->first(); i < (node + node->subtree_size())->first(); i++) tokens.allow(order[i]);
  return tokens;
}

TokenSet& InnerMasks::scratch() {
  if (scratch_ == nullptr) scratch_ = std::make_unique<TokenSet>();
  return *scratch_;
}

void InnerMasks::clear() {
  masks_.clear();
  known_.clear();
}

}  // namespace aici
