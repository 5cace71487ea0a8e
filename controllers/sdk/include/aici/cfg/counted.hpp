// counted.hpp - the texts of a regular expression in JSON's spelling that have at most so many characters.
//
// Written out, a pattern with a length is the product of both, which is large. Here they go side by side: the state of
// the regex, and the characters so far. A state lives if the shortest way to an end is short enough.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "aici/hash_index.hpp"
#include "aici/regex/regex.hpp"

namespace aici::cfg {

class Counted {
 public:
  /// 0 is dead, 1 the first.
  using State = std::uint32_t;

  /// An escape, such as \n or \u001f, is one character. Nothing if the regex has too many states for it.
  static std::optional<Counted> make(regex::Regex regex, std::uint32_t most);

  /// Is no text short enough?
  bool empty() const { return places_[0].rest > most_; }
  State append(State state, std::uint8_t byte);
  bool accepting(State state) const { return regex_.accepting(places_[states_[state].place].regex); }
  bool ended(State state);
  /// As in functional.hpp, for *length bytes.
  Signature loop_signature(State state, std::uint32_t* length) const;
  regex::Regex& regex() { return regex_; }
  const char* failure() const { return regex_.failure(); }

 private:
  /// States of the regex times those of escapes that are looked at: about 30 us each.
  static constexpr std::size_t kMostPlaces = 4096;
  static constexpr std::uint32_t kFar = 0xffffffff;
  /// Where a text is, but for its length.
  struct Place {
    regex::Regex::State regex;
    std::uint8_t escape;     ///< 0 = none, 1 = after the backslash, n > 1 = n - 1 digits are to come
    std::uint32_t rest = kFar;  ///< characters to the nearest end
  };
  struct Pair {
    std::uint32_t place, count;
  };

  Counted(regex::Regex regex, std::uint32_t most) : regex_(std::move(regex)), most_(most) {}
  bool find_rests();
  static std::uint8_t escape_after(std::uint8_t escape, std::uint8_t byte);
  /// Does the byte begin a character?
  static bool begins(std::uint8_t escape, std::uint8_t byte) { return escape == 0 && (byte & 0xC0) != 0x80; }
  std::uint32_t place(regex::Regex::State regex, std::uint8_t escape);
  State intern(std::uint32_t place, std::uint32_t count);

  regex::Regex regex_;
  std::uint32_t most_;
  std::uint32_t farthest_ = 0;
  std::vector<Place> places_;
  HashIndex place_ids_;
  std::vector<Pair> states_{{0, 0}};
  HashIndex ids_;
};

}  // namespace aici::cfg
