// syntax.hpp - the syntax tree of a grammar in the dialect of Lark, and the readers of its words and statements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aici/types.hpp"
#include "../front/rules.hpp"

namespace aici::lark {

// The 64-bit parameters of rules: what a call passes on, and under which conditions an alternative exists.

/// A function of the parameter p of a rule. Bits x (inclusive) to y (exclusive) of p are p[x:y].
struct LarkFunction {
  enum class Kind : std::uint8_t {
    kValue,     ///< `value`
    kSame,      ///< p
    kAnd,       ///< p & value
    kOr,        ///< p | value
    kIncrease,  ///< p with p[x:y] increased, unless all its bits are set
    kDecrease,  ///< p with p[x:y] decreased, unless it is 0
  };
  Kind kind = Kind::kValue;
  std::uint64_t value = 0;
  unsigned x = 0, y = 64;

  std::uint64_t apply(std::uint64_t p) const;
};

/// A condition on the parameter of a rule: compares p[x:y], or the number of its set bits, with a value.
struct LarkCondition {
  enum class Kind : std::uint8_t { kTrue, kEqual, kLess, kMore, kNot, kBoth, kEither };
  Kind kind = Kind::kTrue;
  bool counts = false;  ///< compares the number of set bits
  unsigned x = 0, y = 64;
  std::uint64_t value = 0;
  std::vector<LarkCondition> parts{};

  bool holds(std::uint64_t p) const;
};

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

// words.cpp: names, texts, patterns, parameters of rules, and values in braces.

/// Skips blanks and comments, which begin with // or #.
void skip_lark_blanks(front::Source& source);
/// Skips blanks within a line.
void skip_lark_spaces(front::Source& source);
/// Returns whether a rule or a terminal begins here. Only definitions have a colon after the name, so a body may extend
/// over several lines.
bool at_lark_definition(front::Source& source);
bool at_lark_directive(const front::Source& source);
/// Returns an empty name if there is none. Names may contain `-`.
std::string_view take_lark_name(front::Source& source);
/// Reads "..." and replaces its escapes.
std::string take_lark_text(front::Source& source);
/// Reads /.../ with flags; returns one regular expression, which is valid.
std::string take_lark_pattern(front::Source& source);

/// Reads what follows `::` in a call, such as `set_bit(3)`, `_` or `0x0`.
LarkFunction read_lark_function(front::Source& source);
/// Reads what follows `%if`, such as `and(bit_clear(0), lt([4:8], 3))`.
LarkCondition read_lark_condition(front::Source& source);

/// Reads the value of %regex or %llguidance: an object in braces.
std::string_view take_lark_object(front::Source& source);
/// Reads a nested grammar in braces; returns its text without them.
std::string_view take_lark_grammar(front::Source& source);
/// Reads the value of %json: an object in braces, or `true` or `false`.
std::string_view take_lark_schema(front::Source& source);

/// Reads {"substring_chars": "..."}, {"substring_words": "..."} or {"substring_chunks": ["...", ...]}. Returns whether
/// it is the first form.
bool read_chunks(const front::Source& source, std::string_view object, std::size_t at,
                 std::vector<std::string>* chunks);

}  // namespace aici::lark
