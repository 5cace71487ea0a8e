// quotation.hpp - a recognizer of quotations: nonempty substrings of a text, and the marker that ends them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "aici/detail/containers.hpp"
#include "aici/functional.hpp"
#include "aici/substring.hpp"

namespace aici {

/// A substring of at least one character and a marker after it, which ends the output where it first occurs. Without a
/// marker, the output may end after each character.
class Quotation {
 public:
  /// The state of the substring if no marker has begun, otherwise kPair and the number of a pair.
  using State = std::uint32_t;
  /// Maximum length of a marker.
  static constexpr std::size_t kMaxEndBytes = 64;

  /// `text` is UTF-8 of 1 to Substrings::kMaxBytes bytes; `end` has at most kMaxEndBytes and may be empty.
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

  /// Two readings of the text so far: all of it is a substring, in state `text` (0: it is not). Or, for each bit i of
  /// `marks`, it is a substring and then the first i + 1 bytes of the marker.
  struct Pair {
    Substrings::State text;
    std::uint64_t marks;
  };
  State intern(Pair pair);

  Substrings substrings_;
  std::uint64_t places_[256] = {};  ///< bit i: byte i of the marker has this value
  std::uint64_t last_ = 0;          ///< the bit of the whole marker
  std::vector<Pair> pairs_;
  HashIndex numbers_;
};

static_assert(FunctionalRecognizer<Quotation> && HasDead<Quotation>);

}  // namespace aici
