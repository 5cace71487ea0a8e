// counted.hpp - the texts of a regular expression with a number of characters between two bounds.
//
// Written out, a pattern with a length is the product of both, which is large. Here they go side by side: the place in
// the regex, and the characters so far. A state lives if from there an end can be reached with a number that is allowed.
// What does not depend on the bounds is made once for all of them.
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

  /// The texts of any length. With `escapes` they are in JSON's spelling, and an escape, such as \n or \u001f, is one
  /// character. Nothing if the regex has too many states for it.
  static std::optional<Counted> make(regex::Regex regex, bool escapes);
  /// Those with at least and at most so many characters. Nothing if that cannot be told from how far the nearest end
  /// is: of (..)* the lengths from there are not all, with a bound below; or if the bounds are too large.
  std::optional<Counted> between(std::uint32_t least, std::uint32_t most) const;

  /// Is there no text?
  bool empty() const { return least_ > most_ || !lives(kFirst, 0); }
  State append(State state, std::uint8_t byte) const;
  bool accepting(State state) const { return shape_->places[place_of(state)].accepting && count_of(state) >= least_; }
  bool ended(State state) const;
  /// As in functional.hpp, for *length bytes.
  Signature loop_signature(State state, std::uint32_t* length) const;
  regex::Regex& regex() { return shape_->regex; }
  const char* failure() const { return shape_->regex.failure(); }

 private:
  using PlaceId = std::uint16_t;
  static constexpr PlaceId kNowhere = 0, kFirst = 1;
  /// States of the regex times those of escapes that are looked at: about 5 us each.
  static constexpr std::size_t kMostPlaces = 4096;
  static constexpr std::uint32_t kFar = 0xffffffff, kMostStates = 1u << 31;
  /// Where a text is, but for its length.
  struct Place {
    regex::Regex::State regex;
    std::uint8_t escape;         ///< 0 = none, 1 = after the backslash, n > 1 = n - 1 digits are to come
    bool accepting = false;
    std::uint32_t rest = kFar;  ///< characters to the nearest end
    /// Where bytes lead, each place once for those that begin a character and once for others.
    struct Way {
      PlaceId to;
      bool begins;
      bool operator==(const Way&) const = default;
    };
    std::vector<Way> ways;
  };
  struct Shape {
    Shape(regex::Regex it, bool with_escapes) : regex(std::move(it)), escapes(with_escapes) {}

    regex::Regex regex;
    bool escapes;
    std::vector<Place> places;
    std::vector<PlaceId> next;  ///< 256 for each place
    std::uint32_t farthest = 0;
    /// May any text be made longer by each number of characters, but at its end?
    bool stretches = false;

    bool find_places();
    void find_rests();
    bool can_stretch() const;
  };

  explicit Counted(std::shared_ptr<Shape> shape) : shape_(std::move(shape)) {}
  /// Does the byte begin a character?
  static bool begins(std::uint8_t escape, std::uint8_t byte) { return escape == 0 && (byte & 0xC0) != 0x80; }
  static std::uint8_t escape_after(std::uint8_t escape, std::uint8_t byte);
  PlaceId place_of(State state) const { return static_cast<PlaceId>(state % shape_->places.size()); }
  std::uint32_t count_of(State state) const { return state / static_cast<std::uint32_t>(shape_->places.size()); }
  bool lives(PlaceId place, std::uint32_t count) const;

  std::shared_ptr<Shape> shape_;
  std::uint32_t least_ = 0, most_ = 0;
};

}  // namespace aici::cfg
