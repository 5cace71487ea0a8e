// patterns.hpp - terminals and repetitions for the front ends of the context-free engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "aici/cfg/grammar.hpp"
#include "aici/regex/regex.hpp"
#include "source.hpp"

namespace aici::front {

/// Which texts of a regular expression are meant.
enum class Texts : std::uint8_t {
  kAll,
  kLexemes,  ///< Regex::lexeme
  kWithout,  ///< nonempty ones no part of which matches
};

/// Compiles a regular expression in a grammar. `place` maps a byte of the expression to its position in the grammar, for
/// messages. Returns nothing if no text matches.
std::optional<regex::Regex> read_pattern(const Source& source, std::string_view pattern, Texts texts,
                                         const std::function<std::size_t(std::size_t)>& place);

/// A regular expression for one character, and for a text, which must be UTF-8. Of flags around it only i matters.
std::string pattern_of(char32_t character);
std::string pattern_of(std::string_view text);

/// Adds a rule for `expr`; `name` is its name in messages.
cfg::Expr as_rule(cfg::Grammar& grammar, cfg::Expr expr, std::string_view name);

/// Repeats `expr`. A long expression gets its own rule, so that nested repetitions do not multiply.
cfg::Expr repeated(cfg::Grammar& grammar, cfg::Expr expr, std::uint32_t least, std::uint32_t most,
                   std::string_view name);

/// Logs a warning with its position.
void warn(const Source& source, std::size_t at, std::string_view problem);

}  // namespace aici::front
