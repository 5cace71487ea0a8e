// explorer.hpp - goes through the states of a functional recognizer, the nearest first.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/functional.hpp"
#include "aici/hash_index.hpp"

namespace aici::detail {

/// Recognizers whose states can be told apart.
template <class F>
concept Explorable = FunctionalRecognizer<F> && std::convertible_to<typename F::State, std::uint32_t>;

/// Bytes that may come in a place, and how many more the character then needs.
struct ByteRange {
  std::uint8_t low, high, missing;
};

/// The states that have been seen, in places from 0 on, and which of them is next.
class Frontier {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  /// More states than this are not remembered.
  static constexpr std::size_t kMost = 4096;

  /// True if the state with this number is a new one, which then has the next place.
  bool add(std::uint32_t number, std::uint8_t missing);
  /// The place of the next state to look at, or kNone: those between characters come first.
  std::uint32_t next();
  /// Bytes to the end of the character.
  std::uint8_t missing(std::uint32_t place) const { return missing_[place]; }
  /// What may come there.
  static std::span<const ByteRange> bytes(std::uint8_t missing);

 private:
  std::vector<std::uint32_t> numbers_;
  std::vector<std::uint8_t> missing_;
  HashIndex index_;
  std::uint32_t whole_ = 0, part_ = 0;  ///< where to look for the next of either sort
};

/// All states that texts lead to from a first one: breadth first, those behind ASCII characters before those behind
/// others. States inside a character are passed through only: few tokens end there.
template <Explorable F>
class Explorer {
 public:
  using State = typename F::State;

  explicit Explorer(State first) { see(first, 0); }

  /// The next state between two characters, after looking at no more than `steps` states, or null. It is valid until
  /// the next call.
  const State* next(F& f, unsigned steps) {
    for (; steps != 0; steps--) {
      const std::uint32_t place = frontier_.next();
      over_ = place == Frontier::kNone;
      if (over_) break;
      const std::uint8_t missing = frontier_.missing(place);
      found_ = states_[place];
      for (const ByteRange& range : Frontier::bytes(missing))
        for (unsigned byte = range.low; byte <= range.high; byte++)
          if (State next = found_; try_append(f, found_, static_cast<std::uint8_t>(byte), &next))
            see(next, range.missing);
      if (missing == 0) return &found_;
    }
    return nullptr;
  }

  /// Has it been through all of them?
  bool over() const { return over_; }

 private:
  void see(State state, std::uint8_t missing) {
    if (frontier_.add(static_cast<std::uint32_t>(state), missing)) states_.push_back(state);
  }

  Frontier frontier_;
  std::vector<State> states_;
  State found_{};
  bool over_ = false;
};

}  // namespace aici::detail
