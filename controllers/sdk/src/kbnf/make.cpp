// Makes a recognizer from a grammar in KBNF.
#include <cstdint>
#include <utility>

#include "aici/host.hpp"
#include "aici/kbnf/kbnf.hpp"
#include "reader.hpp"

namespace aici::kbnf {

namespace {

bool has_byte(cfg::Parser& parser) {
  for (unsigned byte = 0; byte < 256; byte++)
    if (parser.byte_allowed(parser.initial(), static_cast<std::uint8_t>(byte))) return true;
  return false;
}

}  // namespace

cfg::Parser make_or_fail(std::string_view grammar, std::span<const std::string> extract) {
  Kbnf kbnf = read_kbnf(grammar, extract);
  cfg::Parser parser = cfg::make_or_fail(std::move(kbnf.grammar), kbnf.start);
  if (!has_byte(parser)) fail("start matches only the empty text; it must match at least one byte");
  return parser;
}

}  // namespace aici::kbnf
