// syntax.hpp - the syntax tree of a grammar in the dialect of Lark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aici/types.hpp"
#include "../front/source.hpp"
#include "parameters.hpp"

namespace aici::lark {

/// The number of a node.
using Part = std::uint32_t;

struct LarkNode {
  enum class Kind : std::uint8_t {
    kText,      ///< `text`
    kPattern,   ///< `text`: a regular expression; also for ranges and texts without case
    kName,      ///< `text`: the name of a rule or a terminal
    kChunks,    ///< `chunks`: any run of consecutive ones
    kJson,      ///< `text`: a JSON Schema, which begins at `text_at`
    kLark,      ///< `text`: a nested grammar, which begins at `text_at`; in rules
    kTokens,    ///< one of `tokens`, which are special; in rules
    kIf,        ///< the empty text if `condition` holds, else nothing; in rules with a parameter
    kSequence,  ///< `parts`
    kChoice,    ///< `parts`
    kBoth,      ///< `parts`: texts that match all of them; in terminals
    kNot,       ///< texts that do not match parts[0]; in terminals
    kRepeat,    ///< parts[0] from `least` to `most` times
    kGroup,     ///< parts[0], in deeply nested brackets
  };
  Kind kind;
  std::size_t at = 0;
  std::string text{};
  std::vector<Part> parts{};
  std::uint32_t least = 0, most = 0;
  std::vector<std::string> chunks{};
  bool characters = false;  ///< each chunk is one character
  std::size_t text_at = 0;
  std::vector<TokenId> tokens{};
  std::optional<LarkFunction> parameter{};  ///< of kName: what the call of a rule passes on
  LarkCondition condition{};
};

/// A rule, a terminal, or ignored text. Its nodes have consecutive numbers; the body is the last one.
struct LarkDefinition {
  std::string name;
  std::size_t at;
  Part first, body;
  /// Matches the shortest texts; and the text with which they must end.
  bool lazy = false;
  std::optional<Part> suffix{};
  /// At which its tokens are sampled, as in MidResult::with_temperature; 0 for that of the request.
  float temperature = 0;
  bool has_parameter = false;
  /// The names under which the client gets the text without its suffix, and the suffix; empty if it does not.
  std::string capture{}, suffix_capture{};
};

struct LarkSyntax {
  std::vector<LarkNode> nodes;
  std::vector<LarkDefinition> rules, terminals, ignored;
};

/// Rules begin with a lower-case letter, terminals with an upper-case one, after any underscores.
bool is_terminal_name(std::string_view name);

/// Fails the controller if the text is not in the syntax.
LarkSyntax read_lark(front::Source& source);

}  // namespace aici::lark
