// codepoint_set.hpp - a set of Unicode scalar values.
#pragma once

#include <cstdint>
#include <vector>

namespace aici::regex {

inline constexpr std::uint32_t kMaxCodepoint = 0x10FFFF;

/// Returns whether a code point is a scalar value: one that text can contain, so not a surrogate.
inline constexpr bool is_scalar(std::uint32_t c) { return c < 0xD800 || (c > 0xDFFF && c <= kMaxCodepoint); }

struct CodepointRange {
  std::uint32_t low, high;  ///< inclusive
  bool operator==(const CodepointRange&) const = default;
};

/// Sorted ranges with a gap between any two, none of them with a surrogate.
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

}  // namespace aici::regex
