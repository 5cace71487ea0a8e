// alphabet.hpp - sets of characters, the kinds of characters that a pattern distinguishes, and the decoder from bytes
// to kinds.
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
#include "aici/regex/limits.hpp"

namespace aici::regex {

inline constexpr std::uint32_t kMaxCodepoint = 0x10FFFF;

/// Returns whether a code point is a scalar value: one that text can contain, so not a surrogate.
inline constexpr bool is_scalar(std::uint32_t c) { return c < 0xD800 || (c > 0xDFFF && c <= kMaxCodepoint); }

struct CodepointRange {
  std::uint32_t low, high;  ///< inclusive
  bool operator==(const CodepointRange&) const = default;
};

/// A set of Unicode scalar values: sorted ranges with a gap between any two, none of them with a surrogate.
class CodepointSet {
 public:
  CodepointSet() = default;
  CodepointSet(std::uint32_t low, std::uint32_t high) { add(low, high); }
  static CodepointSet all() { return CodepointSet(0, kMaxCodepoint); }

  /// Adds low..high without surrogates. Fast if the set has no value above `low`.
  void add(std::uint32_t low, std::uint32_t high);
  void add(const CodepointSet& other);

  CodepointSet complement() const;
  CodepointSet operator&(const CodepointSet& other) const;
  CodepointSet operator-(const CodepointSet& other) const { return *this & other.complement(); }
  CodepointSet operator^(const CodepointSet& other) const;

  bool empty() const { return ranges_.empty(); }
  bool contains(std::uint32_t codepoint) const;
  bool intersects(std::uint32_t low, std::uint32_t high) const;
  const std::vector<CodepointRange>& ranges() const { return ranges_; }
  bool operator==(const CodepointSet&) const = default;

 private:
  void add_scalars(std::uint32_t low, std::uint32_t high);

  std::vector<CodepointRange> ranges_;
};

using KindSetId = std::uint16_t;
inline constexpr KindSetId kNoKinds = 0;

/// Sets of kinds of characters, each stored once.
class KindSets {
 public:
  explicit KindSets(std::size_t words) : words_(words) {
    std::vector<std::uint32_t> none(words);
    add(none);
  }

  /// Returns the number of a set of kinds, given as a bit set; kNoKinds beyond 65535 sets (`overflow`).
  KindSetId add(std::span<const std::uint32_t> set);
  KindSetId unite(KindSetId a, KindSetId b);
  KindSetId intersect(KindSetId a, KindSetId b);
  bool overflow() const { return overflow_; }

  std::span<const std::uint32_t> operator[](KindSetId set) const {
    return {bits_.data() + set * words_, words_};
  }

  /// Calls visit(kind) for each member in order.
  template <class Visit>
  void each(KindSetId set, Visit visit) const {
    for (std::size_t i = 0; i < words_; i++)
      for (std::uint32_t word = bits_[set * words_ + i]; word; word &= word - 1)
        visit(static_cast<std::uint32_t>(i * 32) + static_cast<std::uint32_t>(__builtin_ctz(word)));
  }

  std::size_t bytes() const { return bits_.size() * 4 + ids_.bytes(); }

 private:
  std::size_t words_;
  std::vector<std::uint32_t> bits_;
  HashIndex ids_;
  std::uint32_t count_ = 0;
  bool overflow_ = false;
};

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
