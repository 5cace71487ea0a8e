// characters.hpp - the texts and classes of GBNF.
#pragma once

#include <string>

#include "../front/source.hpp"

namespace aici::gbnf {

/// Reads "..." and replaces its escapes.
std::string take_gbnf_literal(front::Source& source);
/// Reads [...] and translates it into a class of a regular expression.
std::string take_gbnf_class(front::Source& source);

}  // namespace aici::gbnf
