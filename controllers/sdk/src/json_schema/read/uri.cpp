#include "uri.hpp"

#include <algorithm>

namespace aici::json_schema {
namespace {

/// Returns the length of `scheme:`, or 0.
std::size_t scheme_length(std::string_view uri) {
  for (std::size_t i = 0; i < uri.size(); i++) {
    const char c = uri[i], small = static_cast<char>(c | 0x20);
    if (c == ':') return i == 0 ? 0 : i + 1;
    const bool letter = small >= 'a' && small <= 'z';
    if (!letter && (i == 0 || !((c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.'))) return 0;
  }
  return 0;
}

/// Removes `.` and `..`.
std::string straight(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/', 1), path.size());
    const std::string_view part = path.substr(0, end), name = part.starts_with('/') ? part.substr(1) : part;
    path.remove_prefix(end);
    if (name == "..") {
      out.erase(out.find_last_of('/') == std::string::npos ? 0 : out.find_last_of('/'));
    } else if (name != ".") {
      out += part;
      continue;
    }
    if (path.empty()) out += '/';
  }
  return out;
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

}  // namespace

std::string resolve_uri(std::string_view base, std::string_view reference) {
  if (reference.empty()) return std::string(base);
  if (scheme_length(reference) > 0) return std::string(reference);
  const std::size_t scheme = scheme_length(base);
  if (reference.starts_with("//")) return std::string(base.substr(0, scheme)).append(reference);
  std::size_t path = scheme;
  if (base.substr(scheme).starts_with("//")) path = std::min(base.find_first_of("/?", scheme + 2), base.size());
  const std::size_t end = std::min(base.find('?', path), base.size());
  if (reference.starts_with('?')) return std::string(base.substr(0, end)).append(reference);
  const std::size_t query = std::min(reference.find('?'), reference.size());
  std::string merged(reference.substr(0, query));
  if (!reference.starts_with('/')) {
    const std::size_t slash = base.substr(0, end).find_last_of('/');
    const bool has_folder = slash != std::string_view::npos && slash >= path;
    merged.insert(0, has_folder ? base.substr(path, slash + 1 - path) : path > scheme ? "/" : "");
  }
  return std::string(base.substr(0, path)).append(straight(merged)).append(reference.substr(query));
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); i++)
    if (text[i] == '%' && i + 2 < text.size() && hex(text[i + 1]) >= 0 && hex(text[i + 2]) >= 0) {
      out += static_cast<char>(hex(text[i + 1]) << 4 | hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  return out;
}

}  // namespace aici::json_schema
