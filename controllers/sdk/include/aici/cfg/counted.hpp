// counted.hpp - the texts of a regular expression with a number of characters between two bounds.
//
// The expanded product of a pattern and a length is large. Counted keeps both side by side: the place in the regex, and
// the number of characters so far. Without an upper bound it counts no further than to the lower one, so that states
// repeat. A state is alive if an end can be reached from it with an allowed number of
// characters. All bounds share the tables that do not depend on them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "aici/regex/regex.hpp"

namespace aici::cfg {

class Counted {
 public:
  /// 0 is dead, 1 the first.
  using State = std::uint32_t;

  /// Returns the texts of any length, or nothing if the regex has too many states. With `escapes`, the texts are in
  /// JSON's spelling, and an escape such as \n or \u001f is one character.
  static std::optional<Counted> make(std::shared_ptr<regex::Regex> regex, bool escapes);
  /// Returns the texts with `least` to `most` characters; `most` may be kUnlimited. Returns nothing if the bounds are too
  /// large, or if the distance to the nearest end does not decide about a lower bound: from a place in
  /// (..)*, not all lengths are possible.
  std::optional<Counted> between(std::uint32_t least, std::uint32_t most) const;

  /// Returns whether there is no text.
  bool empty() const { return least_ > most_ || !lives(kFirst, 0); }
  State append(State state, std::uint8_t byte) const;
  bool accepting(State state) const { return shape_->places[place_of(state)].accepting && count_of(state) >= least_; }
  bool ended(State state) const;
  /// As in functional.hpp, for *length bytes.
  Signature loop_signature(State state, std::uint32_t* length) const;
  /// Returns the number of characters for which the regex alone decides what may follow, and where the text may end
  /// unless it is too short; 0 if it does not.
  std::uint32_t free_length(State state) const;
  regex::Regex& regex() const { return *shape_->regex; }
  const std::shared_ptr<regex::Regex>& shared_regex() const { return shape_->regex; }
  regex::Regex::State regex_state(State state) const { return shape_->places[place_of(state)].regex; }
  const char* failure() const { return shape_->regex->failure(); }

 private:
  using PlaceId = std::uint16_t;
  static constexpr PlaceId kNowhere = 0, kFirst = 1;
  /// Maximum number of pairs of a regex state and an escape state; about 2 us and 600 bytes each.
  static constexpr std::size_t kMaxPlaces = 8192;
  static constexpr std::uint32_t kFar = 0xffffffff, kMaxStates = 1u << 31;
  /// The state of a text, except for its length.
  struct Place {
    regex::Regex::State regex;
    std::uint8_t escape;         ///< 0: none, 1: after the backslash, n > 1: n - 1 digits are missing
    bool accepting = false;
    std::uint32_t rest = kFar;  ///< characters to the nearest end
    /// The next places, separately for bytes that begin a character and for others.
    struct Way {
      PlaceId to;
      bool begins;
      bool operator==(const Way&) const = default;
    };
    std::vector<Way> ways;
  };
  struct Shape {
    Shape(std::shared_ptr<regex::Regex> it, bool with_escapes) : regex(std::move(it)), escapes(with_escapes) {}

    std::shared_ptr<regex::Regex> regex;
    bool escapes;
    std::vector<Place> places;
    std::vector<PlaceId> next;  ///< 256 for each place
    std::uint32_t farthest = 0;
    /// Whether any text can be extended by each number of characters, except at its end.
    bool stretches = false;
    /// Whether no text can be extended at its end, as with a closing quote.
    bool closes = false;

    bool find_places();
    void find_rests();
    bool can_stretch() const;
  };

  explicit Counted(std::shared_ptr<Shape> shape) : shape_(std::move(shape)) {}
  /// Returns whether the byte begins a character.
  static bool begins(std::uint8_t escape, std::uint8_t byte) { return escape == 0 && (byte & 0xC0) != 0x80; }
  static std::uint8_t escape_after(std::uint8_t escape, std::uint8_t byte);
  PlaceId place_of(State state) const { return static_cast<PlaceId>(state % shape_->places.size()); }
  std::uint32_t count_of(State state) const { return state / static_cast<std::uint32_t>(shape_->places.size()); }
  bool lives(PlaceId place, std::uint32_t count) const;
  std::uint32_t room(std::uint32_t count) const;

  std::shared_ptr<Shape> shape_;
  std::uint32_t least_ = 0, most_ = 0;
};

}  // namespace aici::cfg
