// checks.hpp - what is wrong with a grammar although it can be read.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "aici/lr/grammar.hpp"

/// Calls `fail`, which does not return, with the name of a rule and what is wrong with it: no text comes of it, or it
/// can be replaced by itself. Returns warnings: rules that are not used.
std::vector<std::string> check_grammar(
    const aici::lr::Grammar& grammar,
    const std::function<void(const std::string& name, const std::string& problem)>& fail);
