// uri.hpp - references to other schemas, as RFC 3986 resolves them.
#pragma once

#include <string>
#include <string_view>

namespace aici::json_schema {

/// `reference` as seen from `base`; both without a fragment.
std::string resolve_uri(std::string_view base, std::string_view reference);
/// Without %xx.
std::string percent_decoded(std::string_view text);

}  // namespace aici::json_schema
