// schema.hpp - a JSON schema that stands in a grammar.
#pragma once

#include <cstddef>
#include <string_view>

#include "aici/cfg/grammar.hpp"
#include "aici/front/source.hpp"

namespace aici::front {

/// The texts of a schema, in the spelling that docs/json_schema.md describes. However the grammar
/// is read, they are exactly these. Fails, in the name of the place `at`, if the schema is refused.
/// `plain`: of a schema of strings, these as they are, without quotes and escapes.
cfg::Expr read_schema(const Source& source, std::size_t at, std::string_view schema, cfg::Grammar& grammar,
                      bool plain = false);

}  // namespace aici::front
