// schema.hpp - a JSON schema in a grammar.
#pragma once

#include <cstddef>
#include <string_view>

#include "aici/cfg/grammar.hpp"
#include "source.hpp"

namespace aici::front {

/// Adds the texts of a schema, in the spelling that docs/json_schema.md describes, independent of the grammar's
/// lexemes. Fails with the position `at` if the schema is refused. With `plain`, the schema's strings have no quotes
/// and escapes.
cfg::Expr read_schema(const Source& source, std::size_t at, std::string_view schema, cfg::Grammar& grammar,
                      bool plain = false);

}  // namespace aici::front
