// patterns.hpp - terminals and repetitions, as front ends of the context-free engine make them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "aici/cfg/grammar.hpp"
#include "aici/front/source.hpp"
#include "aici/regex/regex.hpp"

namespace aici::front {

/// A regular expression that stands in a grammar; with `without` its complement: texts, not empty, no part of which
/// matches. `place` is where a byte of the expression is in the grammar, for messages. Nothing if no text matches.
std::optional<regex::Regex> read_pattern(const Source& source, std::string_view pattern, bool without,
                                         const std::function<std::size_t(std::size_t)>& place);

/// A regular expression for one character, and for a text, which must be UTF-8. Of flags around it only i matters.
std::string pattern_of(char32_t character);
std::string pattern_of(std::string_view text);

/// A new rule for `expr`; `name` is what messages call it.
cfg::Expr as_rule(cfg::Grammar& grammar, cfg::Expr expr, std::string_view name);

/// `expr` so many times. What is long gets a rule of its own, so that repetitions of repetitions do not multiply.
cfg::Expr repeated(cfg::Grammar& grammar, cfg::Expr expr, std::uint32_t least, std::uint32_t most,
                   std::string_view name);

/// Logs a warning with the place.
void warn(const Source& source, std::size_t at, std::string_view problem);

}  // namespace aici::front
