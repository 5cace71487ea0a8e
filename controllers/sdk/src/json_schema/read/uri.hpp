// uri.hpp - references to other schemas, resolved as in RFC 3986.
#pragma once

#include <string>
#include <string_view>

namespace aici::json_schema {

/// Resolves `reference` relative to `base`; both without a fragment.
std::string resolve_uri(std::string_view base, std::string_view reference);
/// Decodes %xx.
std::string percent_decoded(std::string_view text);

}  // namespace aici::json_schema
