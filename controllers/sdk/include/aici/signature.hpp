// signature.hpp - computes, for a state, the kinds of bytes that the constraint allows any number of times.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "aici/functional.hpp"
#include "aici/types.hpp"

namespace aici {

/// The classes of ASCII bytes in a vocabulary image: `of[b]` for b < 128 is the signature bit of byte b.
struct ByteClasses {
  const std::uint8_t* of;  ///< 256 entries; those from 0x80 on are unused
  std::uint32_t count;     ///< at most 30
};

namespace detail {

struct Utf8Range {
  std::uint8_t low, high;
};

/// Well-formed multi-byte characters: each line is a sequence of byte ranges, ended by {0, 0}.
inline constexpr Utf8Range kUtf8Sequences[8][5] = {
    {{0xC2, 0xDF}, {0x80, 0xBF}},
    {{0xE0, 0xE0}, {0xA0, 0xBF}, {0x80, 0xBF}},
    {{0xE1, 0xEC}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xED, 0xED}, {0x80, 0x9F}, {0x80, 0xBF}},
    {{0xEE, 0xEF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF0, 0xF0}, {0x90, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF1, 0xF3}, {0x80, 0xBF}, {0x80, 0xBF}, {0x80, 0xBF}},
    {{0xF4, 0xF4}, {0x80, 0x8F}, {0x80, 0xBF}, {0x80, 0xBF}},
};

/// A small set of states. If it overflows, there is no useful loop.
template <class State>
struct FewStates {
  static constexpr std::size_t kMax = 16;
  State state[kMax];
  std::size_t count = 0;

  bool has(State s) const {
    for (std::size_t i = 0; i < count; i++)
      if (state[i] == s) return true;
    return false;
  }
  bool add(State s) {
    if (has(s)) return true;
    if (count == kMax) return false;
    state[count++] = s;
    return true;
  }
};

/// Returns whether every byte of low..high leads all states of `from` to states that fit into `to`.
template <class F, class State>
bool all_lead(F& f, const FewStates<State>& from, Utf8Range range, FewStates<State>* to) {
  for (std::size_t i = 0; i < from.count; i++)
    for (unsigned b = range.low; b <= range.high; b++) {
      State next = from.state[i];
      if (!try_append(f, from.state[i], static_cast<std::uint8_t>(b), &next) || !to->add(next)) return false;
    }
  return true;
}

template <class F, class State>
bool utf8_stays(F& f, const FewStates<State>& home) {
  for (const auto& sequence : kUtf8Sequences) {
    FewStates<State> now = home;
    for (const Utf8Range* r = sequence; r->high != 0; r++) {
      FewStates<State> next;
      if (!all_lead(f, now, *r, &next)) return false;
      now = next;
    }
    for (std::size_t i = 0; i < now.count; i++)
      if (!home.has(now.state[i])) return false;
  }
  return true;
}

/// Returns the state to which most allowed ASCII bytes lead from `state` (by majority vote).
template <class F, class State>
bool favourite(F& f, State state, State* found) {
  int votes = 0;
  for (unsigned b = 0; b < 128; b++) {
    State next = state;
    if (!try_append(f, state, static_cast<std::uint8_t>(b), &next)) continue;
    if (votes == 0) *found = next;
    votes += next == *found ? 1 : -1;
  }
  return votes != 0;
}

}  // namespace detail

/// Returns a good answer for `loop_signature(state)`. From `state` it follows the transition of most ASCII bytes, and
/// so on until the path closes a cycle. The answer has each kind of byte that cannot leave the states of this path,
/// so it holds for all of them. Takes some hundred to some thousand calls of `append`: call it once per state and
/// cache the answer.
template <FunctionalRecognizer F>
  requires std::equality_comparable<typename F::State>
Signature find_loop_signature(F& f, typename F::State state, ByteClasses classes) {
  using State = typename F::State;
  detail::FewStates<State> home;
  State next = state;
  for (State now = state; !home.has(now); now = next)
    if (!home.add(now) || !detail::favourite(f, now, &next)) return 0;

  Signature leaves = 0;
  for (unsigned b = 0; b < 128; b++) {
    const Signature bit = 1u << classes.of[b];
    for (std::size_t i = 0; i < home.count && !(leaves & bit); i++)
      if (!try_append(f, home.state[i], static_cast<std::uint8_t>(b), &next) || !home.has(next))
        leaves |= bit;
  }
  Signature stays = ((1u << classes.count) - 1) & ~leaves;
  detail::FewStates<State> reached = home;
  if (detail::all_lead(f, home, {0x80, 0xFF}, &reached) && reached.count == home.count)
    stays |= kWellFormedUtf8 | kOtherBytes;
  else if (detail::utf8_stays(f, home))
    stays |= kWellFormedUtf8;
  return stays;
}

}  // namespace aici
