// alphabet.hpp - the kinds of characters that a pattern distinguishes, and the decoder from bytes to kinds.
//
// A pattern distinguishes characters only by its classes. Characters in the same classes form one *kind*, and the
// automaton works on kinds. Kind 0 has the characters that are in no class, which no match contains. The automaton does
// not move between the bytes of a character: decoder nodes represent the bytes so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/detail/hash_index.hpp"
#include "aici/detail/regex/codepoint_set.hpp"
#include "aici/regex/limits.hpp"

namespace aici::regex {

using Kind = std::uint16_t;

class Alphabet {
 public:
  /// The result of a byte inside a character: 0 (no match has such a character, or it is not UTF-8), a kind (the
  /// character is complete), or kNode plus the number of a decoder node.
  using Step = std::uint16_t;
  static constexpr Step kNode = 0x8000;
  /// Upper bound of the numbers of decoder nodes.
  static constexpr std::uint32_t kMaxNodes = 1 << 14;

  /// Returns false if there are too many kinds or decoder nodes.
  bool build(const std::vector<CodepointSet>& classes, const Limits& limits);

  std::uint32_t size() const { return num_kinds_; }
  /// Kinds 1 to dense()-1 have an ASCII character, higher kinds have none.
  std::uint32_t dense() const { return num_dense_; }
  Kind ascii(std::uint8_t byte) const { return ascii_[byte]; }
  /// Returns whether the kind has characters beyond ASCII.
  bool beyond_ascii(Kind kind) const { return beyond_ascii_[kind]; }
  /// The characters beyond ASCII of kinds that have only a few of them, and these kinds.
  struct Rare {
    std::vector<std::uint32_t> characters;
    std::vector<bool> kinds;
  };
  Rare rare() const;
  /// The kinds of class `index` as a bit set of words() words.
  std::span<const std::uint32_t> kinds_of_class(std::uint32_t index) const {
    return {class_kinds_.data() + index * words(), words()};
  }
  std::size_t words() const { return (num_kinds_ + 31) / 32; }

  /// Steps by the first byte of a character: 256 of them, 0 for ASCII.
  const Step* leads() const { return leads_; }
  /// Steps by a later byte: 64 for each node, for the bytes 0x80 to 0xBF.
  const Step* steps() const { return steps_.data(); }
  /// Returns the kinds of a node's possible characters, sorted, without kind 0.
  std::span<const Kind> kinds_below(std::uint32_t node) const {
    return {below_.data() + below_start_[node], below_start_[node + 1] - below_start_[node]};
  }
  /// The same for each node as bits, those from kind 31 on as bit 31.
  const std::uint32_t* kind_bits_below() const { return below_bits_.data(); }
  static std::uint32_t kind_bit(std::uint32_t kind) { return 1u << (kind < 31 ? kind : 31); }
  std::size_t bytes() const;

 private:
  struct Interval {
    std::uint32_t low;  ///< the interval ends where the next one begins
    Kind kind;
  };

  bool find_kinds(const std::vector<CodepointSet>& classes, const Limits& limits);
  Step make_step(std::uint32_t low, std::uint32_t bits, std::uint32_t least);
  Step uniform_step(Kind kind, std::uint32_t bits);
  Step add_node(const Step* steps);

  std::uint32_t num_kinds_ = 0, num_dense_ = 0;
  Kind ascii_[128] = {};
  Step leads_[256] = {};
  std::vector<bool> beyond_ascii_;
  std::vector<std::uint32_t> class_kinds_;
  std::vector<Interval> intervals_;
  std::vector<Step> steps_;
  std::vector<Kind> below_;
  std::vector<std::uint32_t> below_start_, below_bits_;
  HashIndex node_ids_;
  /// Used while steps are built: steps to characters of a single kind, for 6, 12 and 18 bits; 0: not built yet.
  static constexpr std::uint32_t kUniformDepths = 3;
  std::vector<Step> uniform_;
  bool too_many_nodes_ = false;
};

}  // namespace aici::regex
