// explorer.hpp - visits the states of a functional recognizer, likely ones first.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "aici/detail/byte_set.hpp"
#include "aici/detail/hash_index.hpp"
#include "aici/detail/inner.hpp"
#include "aici/functional.hpp"

namespace aici::detail {

/// Recognizers whose states have numbers.
template <class F>
concept Explorable = FunctionalRecognizer<F> && std::convertible_to<typename F::State, std::uint32_t>;

/// Recognizers that know the bytes with which literals go on.
template <class F>
concept HasLiterals = HasInner<F> && HasSimilar<typename F::Inner>;

/// A range of allowed bytes, and the number of bytes that the character needs after it.
struct ByteRange {
  std::uint8_t low, high, missing;
};

/// The states that have been seen, in places from 0 on, and which one to visit next.
class Frontier {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  /// Maximum number of states.
  static constexpr std::size_t kMax = 4096;

  /// Returns whether the state with this number is new; it then gets the next place. Beyond a limit, costs are equal.
  bool add(std::uint32_t number, std::uint8_t missing, unsigned cost);
  /// Returns the place of the next state to visit, one of those with the lowest cost, or kNone.
  std::uint32_t next();
  /// Returns the number of bytes to the end of the character.
  std::uint8_t missing(std::uint32_t place) const { return seen_[place].missing; }
  /// Returns the cost of the state that `next` has returned.
  unsigned cost() const { return cost_; }
  /// Returns the ranges of allowed bytes.
  static std::span<const ByteRange> bytes(std::uint8_t missing);

 private:
  static constexpr unsigned kMaxCost = 255;
  struct Seen {
    std::uint32_t number;
    std::uint32_t after;  ///< the one to visit after it, as in `first_`
    std::uint8_t missing;
  };

  std::vector<Seen> seen_;
  HashIndex index_;
  /// The place of the newest state with each cost that is to be visited, plus one; 0 = there is none.
  std::uint32_t first_[kMaxCost + 1] = {};
  unsigned cost_ = 0;
};

/// Visits all states that are reachable from a first one, likely ones first. Bytes of literals cost only the choice
/// between them, and those of names that the grammar does not know cost much. So properties come before deeply nested
/// values. States inside a character are only passed through, since few tokens end there.
template <Explorable F>
class Explorer {
 public:
  using State = typename F::State;

  explicit Explorer(State first) { see(first, 0, 0); }

  /// Returns the next state between two characters, or null after visiting `steps` states. The pointer is valid until
  /// the next call.
  const State* next(F& f, unsigned steps) {
    while (steps-- != 0) {
      const std::uint32_t place = frontier_.next();
      over_ = place == Frontier::kNone;
      if (over_) break;
      visit(f, place);
      if (frontier_.missing(place) == 0) return &found_;
    }
    return nullptr;
  }

  /// Returns whether all states have been visited.
  bool over() const { return over_; }

 private:
  /// The cost of a byte, what is added for each further byte of its character, and what is added where names are known
  /// that the byte does not continue.
  static constexpr unsigned kByte = 2, kFurther = 4, kUnknownName = 6;

  void visit(F& f, std::uint32_t place) {
    found_ = states_[place];
    const unsigned cost = frontier_.cost();
    ByteSet literals;  // the bytes with which literals go on, such as the names of properties
    if constexpr (HasLiterals<F>)
      if (const auto inner = f.inner(found_); inner != 0) f.inside().similar(inner, literals);
    const unsigned choices = HasLiterals<F> ? literals.size() : 0;
    const unsigned other = cost + (choices != 0 ? kByte + kUnknownName : kByte);
    for (const ByteRange& range : Frontier::bytes(frontier_.missing(place)))
      for (unsigned byte = range.low; byte <= range.high; byte++) {
        State next = found_;
        if (!try_append(f, found_, static_cast<std::uint8_t>(byte), &next)) continue;
        unsigned all = other + range.missing * kFurther;
        if constexpr (HasLiterals<F>)
          if (literals.has(static_cast<std::uint8_t>(byte))) all = cost + std::bit_width(choices - 1);
        see(next, range.missing, all);
      }
  }

  void see(State state, std::uint8_t missing, unsigned cost) {
    if (frontier_.add(static_cast<std::uint32_t>(state), missing, cost)) states_.push_back(state);
  }

  Frontier frontier_;
  std::vector<State> states_;
  State found_{};
  bool over_ = false;
};

}  // namespace aici::detail
