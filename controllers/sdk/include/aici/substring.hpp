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

#include "aici/byte_search.hpp"
#include "aici/functional.hpp"
#include "aici/types.hpp"

namespace aici {

/// A functional recognizer (functional.hpp): any substring of a text, the empty one too. It is the text's suffix
/// automaton, the smallest deterministic one, made in linear time.
///
/// What has been read is known by the places of the text where it ends. Most of the automaton is what has one place
/// only: there the text itself says how to go on, so such a state is no more than that place. The others have their
/// edges next to each other, a byte and a state each. A text of n bytes takes 9n or so, at most 15n; while the
/// automaton is made it is 45n or so, at most 60n.
class Substrings {
 public:
  /// 0 is dead, 1 the start.
  using State = std::uint32_t;
  static constexpr State kDead = 0, kInitial = 1;
  /// Longer texts fail the controller: a guest has 64 MiB of memory.
  static constexpr std::size_t kMostBytes = 1'000'000;

  /// What a substring is made of. A text whose characters are not cut must be UTF-8.
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
  /// Is what has been read a substring, or but the first bytes of one whose last character is not whole?
  bool accepting(State state) const {
    return state != kDead && (unit_ == Unit::bytes || (any_next(state) & 0xC0) != 0x80);
  }
  bool special_allowed(State state, SpecialToken token) const {
    return token == SpecialToken::eos && accepting(state);
  }
  /// Can no byte follow?
  bool ended(State state) const {
    return state > branches_ ? next_byte(state) > 0xFF : data_[state] == data_[state + 1];
  }
  bool forced_byte(State state, std::uint8_t* byte) const;

  /// Memory.
  std::size_t bytes() const;

 private:
  /// Bytes behind the last label that find_byte reads.
  static constexpr std::uint32_t kReadBehind = 7;

  const State* targets() const { return data_.data() + branches_ + 2; }
  State* targets() { return data_.data() + branches_ + 2; }
  const std::uint8_t* labels() const { return reinterpret_cast<const std::uint8_t*>(targets() + num_edges_); }
  std::uint8_t* labels() { return reinterpret_cast<std::uint8_t*>(targets() + num_edges_); }
  /// Of a state that is a place: what follows there, or a number that is no byte.
  unsigned next_byte(State state) const {
    const std::size_t place = state - branches_;
    return place < text_.size() ? static_cast<std::uint8_t>(text_[place]) : 0x100;
  }
  /// One of the bytes that may follow: within a character all of them continue it. 0 if there is none.
  unsigned any_next(State state) const {
    if (state > branches_) return next_byte(state) & 0xFF;
    return data_[state] != data_[state + 1] ? labels()[data_[state]] : 0;
  }

  Unit unit_;
  std::string text_;
  /// States up to this one have edges: those of state s are data_[s] .. data_[s + 1]. State branches_ + p is the place
  /// behind p bytes of the text.
  State branches_ = 0;
  std::uint32_t num_edges_ = 0;
  /// The first edge of each state; the targets of all edges; their bytes, and some that are only read. In one piece,
  /// since the allocator makes a power of two of what is large.
  std::vector<std::uint32_t> data_;
};

static_assert(FunctionalRecognizer<Substrings> && HasDead<Substrings> && HasForcedByte<Substrings>);

}  // namespace aici
