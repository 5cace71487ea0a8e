// quotation.hpp - a recognizer of quotations: substrings of a text, of one character at least, and what ends them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "aici/functional.hpp"
#include "aici/hash_index.hpp"
#include "aici/substring.hpp"

namespace aici {

/// A substring, and behind it a marker that ends the output where it first occurs. Without a marker it may end after
/// each character.
class Quotation {
 public:
  /// That of the substring where no marker has begun, or kPair and the number of a pair.
  using State = std::uint32_t;
  /// The longest marker.
  static constexpr std::size_t kMostEndBytes = 64;

  /// `text` is UTF-8, has a byte and at most Substrings::kMostBytes; `end` has at most kMostEndBytes, or none.
  Quotation(std::string_view text, std::string_view end);

  State initial() const { return Substrings::kInitial; }
  State append(State state, std::uint8_t byte);
  bool dead(State state) const { return state == Substrings::kDead; }
  bool byte_allowed(State state, std::uint8_t byte) { return !dead(append(state, byte)); }
  bool special_allowed(State state, SpecialToken token) const {
    if (token != SpecialToken::eos) return false;
    return last_ != 0 ? state == kEnded : state != initial() && substrings_.accepting(state);
  }

 private:
  static constexpr State kPair = 1u << 31, kEnded = kPair;

  /// What has been read is all of the substring (0: it is none), or some of it is the beginning of the marker: bit i
  /// of `marks` if its first i + 1 bytes are, and a substring comes before them.
  struct Pair {
    Substrings::State text;
    std::uint64_t marks;
  };
  State intern(Pair pair);

  Substrings substrings_;
  std::uint64_t places_[256] = {};  ///< bit i: byte i of the marker is this one
  std::uint64_t last_ = 0;          ///< the bit of the whole marker
  std::vector<Pair> pairs_;
  HashIndex numbers_;
};

static_assert(FunctionalRecognizer<Quotation> && HasDead<Quotation>);

}  // namespace aici
