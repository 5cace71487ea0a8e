// found.hpp - tells later sequences what this one had to compute.
//
// After a sequence has ended, its constraint lists the states whose answers it computed, each as a text that leads to
// this state. `aici_warm` computes these answers in the snapshot from which later sequences start.
//
// The texts are not those of the sequence. Each has no detour (no two prefixes lead to the same state) and in each
// place the smallest byte with the same effect. So they depend on the visited states only. For example, a sequence
// that wrote a name into a JSON string reports the beginning of this string, and one that wrote a number of three
// digits reports "0", "00" and "000".
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "aici/detail/explorer.hpp"
#include "aici/functional.hpp"
#include "aici/types.hpp"
#include "aici/vocabulary.hpp"

namespace aici::detail {

/// Recognizers whose sequences report what they had to compute: those with numbered states and tables that grow. The
/// masks of others cost little, and their controllers stay small.
template <class R>
concept Reports = Explorable<R> && HasCompact<R>;

/// A list of texts, each encoded as what differs from the one before it.
class FoundTexts {
 public:
  /// Adds a text; drops it if the list would be too long.
  void add(std::span<const char> text);
  std::size_t count() const { return count_; }
  std::span<const char> bytes() const { return bytes_; }

  /// Reads the list of AICI_FOUND, which is empty if there is none.
  static FoundTexts of_host();
  /// Returns whether there is another text, which is then `text()`. An invalid list ends early.
  bool next();
  std::string_view text() const { return {last_.data(), last_.size()}; }
  /// Returns a number that differs for different lists.
  std::uint64_t hash() const;

 private:
  static constexpr std::size_t kMaxBytes = 30 << 10;

  // vectors, since a std::string would link 20 kB of the C++ library
  std::vector<char> bytes_, last_;
  std::size_t count_ = 0, at_ = 0;
};

/// The tokens of a sequence, and the places in which an answer was computed.
class Record {
 public:
  void append(TokenId token) {
    if (tokens_.size() < kMax) tokens_.push_back(token);
  }
  void computed() {
    if (tokens_.size() < kMax) places_.push_back(static_cast<std::uint32_t>(tokens_.size()));
  }
  void clear() { tokens_.clear(), places_.clear(); }

  /// Lists a text for each state for which an answer was computed and `is_new(state)` holds.
  template <class F, class IsNew>
  FoundTexts texts(F& f, IsNew is_new) const {
    using State = typename F::State;
    FoundTexts found;
    std::vector<State> states{f.initial()}, listed;
    std::vector<char> text;        // leads from each of `states` to the next
    std::size_t smallest = 0;      // so many bytes of it are the smallest ones
    std::size_t place = 0;
    for (std::size_t i = 0; place < places_.size() && states.size() < kMax; i++) {
      const State state = states.back();
      if (places_[place] == i && is_new(state) && place_of(listed, state) == listed.size()) {
        listed.push_back(state);
        for (; smallest < text.size(); smallest++)
          text[smallest] = smallest_byte(f, states[smallest], text[smallest], states[smallest + 1]);
        found.add(text);
      }
      while (place < places_.size() && places_[place] == i) place++;
      if (i == tokens_.size()) break;
      for (const char byte : vocabulary().token(tokens_[i])) {
        State next{};
        if (!try_append(f, states.back(), static_cast<std::uint8_t>(byte), &next)) return found;
        const std::size_t before = place_of(states, next);
        if (before == states.size()) {
          states.push_back(next), text.push_back(byte);
        } else {
          states.resize(before + 1), text.resize(before);
          smallest = std::min(smallest, before);
        }
      }
    }
    return found;
  }

 private:
  static constexpr std::size_t kMax = 4096;

  /// Returns the size if the state is not there. (std::find would link 20 kB of the C library.)
  template <class State>
  static std::size_t place_of(const std::vector<State>& states, State state) {
    std::size_t place = 0;
    while (place < states.size() && !(states[place] == state)) place++;
    return place;
  }

  template <class F>
  static char smallest_byte(F& f, typename F::State from, char byte, typename F::State to) {
    for (unsigned b = 0; b < static_cast<std::uint8_t>(byte); b++)
      if (typename F::State next{}; try_append(f, from, static_cast<std::uint8_t>(b), &next) && next == to)
        return static_cast<char>(b);
    return byte;
  }

  std::vector<TokenId> tokens_;
  std::vector<std::uint32_t> places_;
};

/// The part of the controller that `aici_found` asks.
class Finder {
 public:
  /// Not pure: the C++ library's function for calls of pure ones would link 20 kB.
  virtual FoundTexts found() { return {}; }
  static inline constinit Finder* only = nullptr;

 protected:
  Finder();
  ~Finder() = default;
};

}  // namespace aici::detail
