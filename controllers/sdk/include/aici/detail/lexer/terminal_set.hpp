// terminal_set.hpp - sets of terminals, each stored once and known by number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/detail/hash_index.hpp"

namespace aici::lexer {

/// The number of a terminal, which a lexer produces and a parser consumes.
using Terminal = std::uint16_t;
inline constexpr Terminal kNoTerminal = 0xffff;

/// Bit sets of the same length. Equal sets have equal numbers; 0 is the empty set.
class TerminalSets {
 public:
  explicit TerminalSets(std::size_t terminals) : words_((terminals + 31) / 32) { intern(empty()); }

  std::vector<std::uint32_t> empty() const { return std::vector<std::uint32_t>(words_); }
  std::uint32_t intern(std::span<const std::uint32_t> set);
  std::span<const std::uint32_t> operator[](std::uint32_t number) const {
    return {arena_.data() + number * words_, words_};
  }
  bool has(std::uint32_t number, Terminal terminal) const {
    return arena_[number * words_ + terminal / 32] >> (terminal % 32) & 1;
  }
  bool meet(std::uint32_t a, std::uint32_t b) const;
  std::size_t size() const { return arena_.size() / words_; }

 private:
  std::size_t words_;
  std::vector<std::uint32_t> arena_;
  HashIndex ids_;
};

inline void add(std::vector<std::uint32_t>& set, Terminal terminal) { set[terminal / 32] |= 1u << terminal % 32; }

}  // namespace aici::lexer
