// except.hpp - the texts of a regular expression except those in a list, such as names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "aici/detail/byte_set.hpp"
#include "aici/detail/hash_index.hpp"
#include "aici/regex/regex.hpp"

namespace aici::cfg {

/// The regex and, in parallel, a trie of the excluded texts. Excluded texts that the regex does not match have no
/// effect.
class Except {
 public:
  /// 0 is dead, 1 the first.
  using State = std::uint32_t;

  Except(std::shared_ptr<regex::Regex> regex, std::span<const std::string> texts);

  State append(State state, std::uint8_t byte);
  bool accepting(State state) const;
  bool ended(State state);
  /// Returns the regex if no excluded text can follow, otherwise null.
  const regex::Regex* free(State state) const { return pairs_[state].node == kNone ? regex_.get() : nullptr; }
  /// Returns the state outside the excluded texts.
  State outside(regex::Regex::State regex) { return intern(regex, kNone); }
  /// Returns whether no excluded text can follow after a byte from 0x80 on.
  bool free_after_multibyte(State state) const {
    const auto& children = trie_[pairs_[state].node].children;
    return children.empty() || children.back().first < 0x80;
  }
  /// Returns the state after another text as far as the regex goes. It adds the bytes after which they differ.
  State without_names(State state, ByteSet& differ) {
    for (const auto& [byte, node] : trie_[pairs_[state].node].children) differ.add(byte);
    return outside(pairs_[state].regex);
  }
  regex::Regex::State regex_state(State state) const { return pairs_[state].regex; }
  regex::Regex& regex() const { return *regex_; }
  const char* failure() const { return regex_->failure(); }

 private:
  static constexpr std::uint32_t kNone = 0, kRoot = 1;
  struct Node {
    std::vector<std::pair<std::uint8_t, std::uint32_t>> children;
    bool ends = false;
  };
  struct Pair {
    regex::Regex::State regex;
    std::uint32_t node;
    /// Whether a text can still be completed; -1: not computed yet.
    std::int8_t alive;
  };

  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const;
  State intern(regex::Regex::State regex, std::uint32_t node);
  bool alive(State state);

  std::shared_ptr<regex::Regex> regex_;
  std::vector<Node> trie_{2};
  std::vector<Pair> pairs_;
  HashIndex ids_;
};

}  // namespace aici::cfg
