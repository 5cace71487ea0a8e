// warming.hpp - which answers are computed ahead: those of likely states, and of states that earlier sequences visited.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "aici/detail/answer_cache.hpp"
#include "aici/detail/byte_set.hpp"
#include "aici/detail/hash_index.hpp"
#include "aici/functional.hpp"
#include "aici/types.hpp"
#include "aici/vocabulary.hpp"

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

// After a sequence has ended, its constraint lists the states whose answers it computed, each as a text that leads to
// this state. `aici_warm` computes these answers in the snapshot from which later sequences start.
//
// The texts are not those of the sequence. Each has no detour (no two prefixes lead to the same state) and in each
// place the smallest byte with the same effect. So they depend on the visited states only. For example, a sequence
// that wrote a name into a JSON string reports the beginning of this string, and one that wrote a number of three
// digits reports "0", "00" and "000".

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
