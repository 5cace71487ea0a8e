// syntax.hpp - the syntax tree of a grammar in GBNF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aici/types.hpp"
#include "../front/source.hpp"

namespace aici::gbnf {

/// The number of a node.
using Part = std::uint32_t;

struct GbnfNode {
  enum class Kind : std::uint8_t {
    kLiteral,   ///< `text`
    kClass,     ///< `text`: one character, as a regular expression
    kCall,      ///< `text`: the name of a rule
    kSequence,  ///< `parts`
    kChoice,    ///< `parts`
    kTokens,    ///< one of `tokens`, which are special
    kRepeat,    ///< parts[0] from `least` to `most` times
    kGroup,     ///< parts[0], in deeply nested brackets
  };
  Kind kind;
  std::size_t at = 0;
  std::string text;
  std::vector<Part> parts{};
  std::uint32_t least = 0, most = 0;
  std::vector<TokenId> tokens{};
};

struct GbnfRule {
  std::string name;
  std::size_t at;
  Part body;
};

struct GbnfSyntax {
  std::vector<GbnfNode> nodes;  ///< a node comes after its parts
  std::vector<GbnfRule> rules;  ///< each name occurs once
};

/// Fails the controller if the text is not in the syntax.
GbnfSyntax read_gbnf(front::Source& source);

}  // namespace aici::gbnf
