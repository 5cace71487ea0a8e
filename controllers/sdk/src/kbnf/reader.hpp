// reader.hpp - reads a grammar in KBNF.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "aici/cfg/grammar.hpp"

namespace aici::kbnf {

struct Kbnf {
  cfg::Grammar grammar;
  cfg::Rule start;
};

/// Fails the controller, with line and column, if the grammar is invalid. Writes warnings to the log.
Kbnf read_kbnf(std::string_view text, std::span<const std::string> extract);

}  // namespace aici::kbnf
