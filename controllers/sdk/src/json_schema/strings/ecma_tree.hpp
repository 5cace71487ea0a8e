// ecma_tree.hpp - a parsed regular expression of ECMAScript.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/detail/regex/alphabet.hpp"

namespace aici::json_schema {

struct EcmaNode {
  enum class Kind : std::uint8_t {
    kClass,      ///< one character of `set`
    kConcat,     ///< the children, one after the other
    kAlternate,  ///< one of the children
    kRepeat,     ///< the child `min` to `max` times
    kStart,
    kEnd,
    kBoundary,
    kNoBoundary,
    kAhead,      ///< (?=...)
    kNotAhead,   ///< (?!...)
    kBehind,     ///< (?<=...)
    kNotBehind,  ///< (?<!...)
  };
  Kind kind;
  std::uint32_t set = 0;
  std::uint32_t min = 0, max = 0;
  std::vector<std::uint32_t> children;
};

/// Children come before their parents; the last node is the whole.
struct EcmaTree {
  std::vector<EcmaNode> nodes;
  std::vector<regex::CodepointSet> sets;
};

/// Parses an expression, mostly as with the flag `u`. If it is malformed or not supported, returns false and sets
/// `problem`.
bool parse_ecma(std::string_view source, EcmaTree* tree, std::string* problem);

}  // namespace aici::json_schema
