// checks.hpp - errors and warnings for a grammar whose syntax is valid.
#pragma once

#include <functional>
#include <string>

#include "aici/detail/lr/grammar.hpp"

namespace aici::yacc {

/// A problem with a rule, by its name.
using Complaint = std::function<void(const std::string& name, const std::string& problem)>;

/// Calls `fail`, which does not return, for a rule that has no text or can be replaced by itself. Calls `warn` for
/// rules and named terminals that no text of the grammar uses. (`ignored` may stand between any two terminals.)
void check_grammar(const lr::Grammar& grammar, lexer::Terminal ignored, const Complaint& fail,
                   const Complaint& warn);

}  // namespace aici::yacc
