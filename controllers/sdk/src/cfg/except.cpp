#include "aici/detail/cfg/except.hpp"

#include <algorithm>

namespace aici::cfg {

Except::Except(std::shared_ptr<regex::Regex> regex, std::span<const std::string> texts) : regex_(std::move(regex)) {
  for (const std::string& text : texts) {
    std::uint32_t node = kRoot;
    for (const char c : text) {
      const auto byte = static_cast<std::uint8_t>(c);
      std::uint32_t next = child(node, byte);
      if (next == kNone) {
        next = static_cast<std::uint32_t>(trie_.size());
        trie_[node].children.emplace_back(byte, next);
        trie_.emplace_back();
      }
      node = next;
    }
    trie_[node].ends = true;
  }
  for (Node& node : trie_) std::ranges::sort(node.children);
  pairs_.push_back({0, kNone, 0});
  intern(regex_->initial(), kRoot);
}

std::uint32_t Except::child(std::uint32_t node, std::uint8_t byte) const {
  const auto& children = trie_[node].children;
  const auto found = std::ranges::lower_bound(children, byte, {}, [](const auto& pair) { return pair.first; });
  return found != children.end() && found->first == byte ? found->second : kNone;
}

Except::State Except::intern(regex::Regex::State regex, std::uint32_t node) {
  Hasher hash;
  hash.add(regex), hash.add(node);
  const auto same = [&](std::uint32_t i) { return pairs_[i].regex == regex && pairs_[i].node == node; };
  if (const std::uint32_t known = ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  const auto state = static_cast<State>(pairs_.size());
  pairs_.push_back({regex, node, -1});
  ids_.insert(hash.bits(), state);
  return state;
}

Except::State Except::append(State state, std::uint8_t byte) {
  const Pair from = pairs_[state];
  const regex::Regex::State next = regex_->append(from.regex, byte);
  if (regex_->dead(next)) return 0;
  const State to = intern(next, child(from.node, byte));
  return alive(to) ? to : 0;
}

bool Except::accepting(State state) const {
  return regex_->accepting(pairs_[state].regex) && !trie_[pairs_[state].node].ends;
}

/// Returns whether an accepted text can follow. Outside the trie, the regex guarantees it. Every path in the trie is
/// short, so the recursion ends.
bool Except::alive(State state) {
  if (pairs_[state].alive >= 0) return pairs_[state].alive;
  bool found = pairs_[state].node == kNone || accepting(state);
  for (unsigned byte = 0; byte < 256 && !found; byte++) found = append(state, static_cast<std::uint8_t>(byte)) != 0;
  pairs_[state].alive = found;
  return found;
}

bool Except::ended(State state) {
  if (pairs_[state].node == kNone) return regex_->ended(pairs_[state].regex);
  for (unsigned byte = 0; byte < 256; byte++)
    if (append(state, static_cast<std::uint8_t>(byte)) != 0) return false;
  return true;
}

}  // namespace aici::cfg
