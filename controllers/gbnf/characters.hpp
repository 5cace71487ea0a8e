// characters.hpp - the texts and classes of GBNF.
#pragma once

#include <string>

#include "aici/front/source.hpp"

/// Reads "..." and replaces its escapes.
std::string take_gbnf_literal(aici::front::Source& source);
/// Reads [...] and makes a class of a regular expression of it.
std::string take_gbnf_class(aici::front::Source& source);
