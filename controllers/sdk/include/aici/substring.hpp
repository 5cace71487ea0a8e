// substring.hpp - a recognizer of all substrings of a text.
//
//   aici::Substrings quotes(article);
//   Substrings::State s = quotes.initial();
//   s = quotes.append(s, 'a');          // 0 if the article has no "a"
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/functional.hpp"
#include "aici/types.hpp"

namespace aici {

/// A functional recognizer (functional.hpp) of all substrings of a text, including the empty one. It is the text's
/// suffix automaton, the smallest deterministic one, built in linear time.
///
/// A state stands for the positions of the text at which the output so far ends. Most states have only one position:
/// there the text itself gives the next byte, so such a state is just that position. The other states have their
/// edges in one array, a byte and a state each. A text of n bytes takes about 9n bytes, at most 15n; while the
/// automaton is built, it takes about 45n, at most 60n.
class Substrings {
 public:
  /// 0 is dead, 1 the start.
  using State = std::uint32_t;
  static constexpr State kDead = 0, kInitial = 1;
  /// Longer texts fail the controller: a guest has 64 MiB of memory.
  static constexpr std::size_t kMaxBytes = 1'000'000;

  /// The units of a substring. With `characters`, the text must be UTF-8, and no character is cut.
  enum class Unit : std::uint8_t { characters, bytes };

  explicit Substrings(std::string_view text, Unit unit = Unit::characters);
  Substrings(Substrings&&) = default;
  Substrings& operator=(Substrings&&) = default;

  State initial() const { return kInitial; }
  State append(State state, std::uint8_t byte) const {
    if (state > branches_) return next_byte(state) == byte ? state + 1 : kDead;
    const std::uint32_t first = data_[state], count = data_[state + 1] - first;
    const std::uint32_t edge = detail::find_byte(labels() + first, count, byte);
    return edge != count ? targets()[first + edge] : kDead;
  }
  bool byte_allowed(State state, std::uint8_t byte) const { return append(state, byte) != kDead; }
  bool dead(State state) const { return state == kDead; }
  /// Returns whether the output so far is a substring that does not end within a character.
  bool accepting(State state) const {
    return state != kDead && (unit_ == Unit::bytes || (any_next(state) & 0xC0) != 0x80);
  }
  bool special_allowed(State state, SpecialToken token) const {
    return token == SpecialToken::eos && accepting(state);
  }
  /// Returns whether no byte can follow.
  bool ended(State state) const {
    return state > branches_ ? next_byte(state) > 0xFF : data_[state] == data_[state + 1];
  }
  bool forced_byte(State state, std::uint8_t* byte) const;

  /// Returns the memory of the automaton, in bytes.
  std::size_t bytes() const;

 private:
  /// Bytes after the last label that find_byte reads.
  static constexpr std::uint32_t kReadBehind = 7;

  const State* targets() const { return data_.data() + branches_ + 2; }
  State* targets() { return data_.data() + branches_ + 2; }
  const std::uint8_t* labels() const { return reinterpret_cast<const std::uint8_t*>(targets() + num_edges_); }
  std::uint8_t* labels() { return reinterpret_cast<std::uint8_t*>(targets() + num_edges_); }
  /// Returns the byte that follows a state with one position, or 0x100 at the end of the text.
  unsigned next_byte(State state) const {
    const std::size_t place = state - branches_;
    return place < text_.size() ? static_cast<std::uint8_t>(text_[place]) : 0x100;
  }
  /// Returns one of the bytes that may follow, or 0. Within a character all of them continue the character.
  unsigned any_next(State state) const {
    if (state > branches_) return next_byte(state) & 0xFF;
    return data_[state] != data_[state + 1] ? labels()[data_[state]] : 0;
  }

  Unit unit_;
  std::string text_;
  /// States up to this one have edges: those of state s are data_[s] .. data_[s + 1]. State branches_ + p is the
  /// position after p bytes of the text.
  State branches_ = 0;
  std::uint32_t num_edges_ = 0;
  /// The first edge of each state, the targets of all edges, their bytes, and some bytes of padding. It is one block,
  /// since the allocator rounds large blocks up to a power of two.
  std::vector<std::uint32_t> data_;
};

static_assert(FunctionalRecognizer<Substrings> && HasDead<Substrings> && HasForcedByte<Substrings>);

}  // namespace aici
