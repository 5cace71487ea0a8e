// limits.hpp - the limits of a context-free grammar and its parser.
#pragma once

#include <cstdint>

namespace aici::cfg {

struct Limits {
  /// States of all automata, 16 bytes each; repetitions are written out.
  std::uint32_t places = 1u << 20;
  /// Nesting depth of groups; the construction recurses.
  std::uint32_t nesting = 1000;
  /// Members of the sets that make one column, over all readings of an ambiguous text. About 50 ns each.
  std::uint32_t threads = 1u << 16;
  /// Memory for columns and states that is kept between masks. An ambiguous text may need more for each byte.
  std::uint32_t kept_bytes = 4u << 20;
};

}  // namespace aici::cfg
