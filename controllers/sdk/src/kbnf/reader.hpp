// reader.hpp - a grammar in KBNF.
#pragma once

#include <string_view>

#include "aici/cfg/grammar.hpp"

namespace aici::kbnf {

struct Kbnf {
  cfg::Grammar grammar;
  cfg::Rule start;
};

/// Fails the controller, with line and column, if the text is no such grammar. Logs what people should know about it.
Kbnf read_kbnf(std::string_view text);

}  // namespace aici::kbnf
