// explorer.hpp - visits the states of a functional recognizer, nearest first.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/detail/hash_index.hpp"
#include "aici/functional.hpp"

namespace aici::detail {

/// Recognizers whose states have numbers.
template <class F>
concept Explorable = FunctionalRecognizer<F> && std::convertible_to<typename F::State, std::uint32_t>;

/// A range of allowed bytes, and the number of bytes that the character needs after it.
struct ByteRange {
  std::uint8_t low, high, missing;
};

/// The states that have been seen, in places from 0 on, and the next state to visit.
class Frontier {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  /// Maximum number of states.
  static constexpr std::size_t kMost = 4096;

  /// Returns whether the state with this number is new; it then gets the next place.
  bool add(std::uint32_t number, std::uint8_t missing);
  /// Returns the place of the next state to visit, or kNone. States between characters come first.
  std::uint32_t next();
  /// Returns the number of bytes to the end of the character.
  std::uint8_t missing(std::uint32_t place) const { return missing_[place]; }
  /// Returns the ranges of allowed bytes.
  static std::span<const ByteRange> bytes(std::uint8_t missing);

 private:
  std::vector<std::uint32_t> numbers_;
  std::vector<std::uint8_t> missing_;
  HashIndex index_;
  std::uint32_t whole_ = 0, part_ = 0;  ///< where the search for the next state of each kind continues
};

/// Visits all states that are reachable from a first one: breadth first, and states after ASCII characters before
/// others. States inside a character are only passed through, since few tokens end there.
template <Explorable F>
class Explorer {
 public:
  using State = typename F::State;

  explicit Explorer(State first) { see(first, 0); }

  /// Returns the next state between two characters, or null after visiting `steps` states. The pointer is valid until
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

  /// Returns whether all states have been visited.
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
