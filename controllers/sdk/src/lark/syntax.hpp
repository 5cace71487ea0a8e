// syntax.hpp - the syntax tree of a grammar in the dialect of Lark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../front/source.hpp"

namespace aici::lark {

/// The number of a node.
using Part = std::uint32_t;

struct LarkNode {
  enum class Kind : std::uint8_t {
    kText,      ///< `text`
    kPattern,   ///< `text`: a regular expression; ranges and texts without case too
    kName,      ///< `text`: of a rule or a terminal
    kChunks,    ///< `chunks`, any of them that follow each other
    kJson,      ///< `text`: a JSON Schema, which stands at `text_at`
    kSequence,  ///< `parts`
    kChoice,    ///< `parts`
    kBoth,      ///< `parts`: texts that all of them have; in terminals
    kNot,       ///< texts that parts[0] has not; in terminals
    kRepeat,    ///< parts[0] from `least` to `most` times
    kGroup,     ///< parts[0], which is deep in brackets
  };
  Kind kind;
  std::size_t at = 0;
  std::string text{};
  std::vector<Part> parts{};
  std::uint32_t least = 0, most = 0;
  std::vector<std::string> chunks{};
  bool characters = false;  ///< the chunks are one character each
  std::size_t text_at = 0;
};

/// A rule, a terminal, or what is ignored. Its nodes are numbered one after the other, the body last.
struct LarkDefinition {
  std::string name;
  std::size_t at;
  Part first, body;
  /// The shortest texts, and what they must end with.
  bool lazy = false;
  std::optional<Part> suffix{};
};

struct LarkSyntax {
  std::vector<LarkNode> nodes;
  std::vector<LarkDefinition> rules, terminals, ignored;
};

/// Rules begin with a small letter, terminals with a capital one; underscores before it do not count.
bool is_terminal_name(std::string_view name);

/// Fails the controller if the text is not in the syntax.
LarkSyntax read_lark(front::Source& source);

}  // namespace aici::lark
