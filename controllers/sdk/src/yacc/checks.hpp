// checks.hpp - what is wrong with a grammar although it can be read.
#pragma once

#include <functional>
#include <string>

#include "aici/lr/grammar.hpp"

namespace aici::yacc {

/// What is wrong with a rule, by its name.
using Complaint = std::function<void(const std::string& name, const std::string& problem)>;

/// Calls `fail`, which does not return, for a rule of which no text comes or that can be replaced by itself, and `warn`
/// for rules and named terminals that no text of the grammar can have. (`ignored` may stand between any two.)
void check_grammar(const lr::Grammar& grammar, lexer::Terminal ignored, const Complaint& fail,
                   const Complaint& warn);

}  // namespace aici::yacc
