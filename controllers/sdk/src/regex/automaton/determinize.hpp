// determinize.hpp - builds a complete deterministic automaton over kinds, for patterns that need it eagerly.
#pragma once

#include <cstdint>
#include <vector>

#include "aici/detail/regex/alphabet.hpp"
#include "aici/detail/regex/kind_sets.hpp"
#include "aici/detail/regex/nfa.hpp"

namespace aici::regex {

/// State 0 is the start.
struct Deterministic {
  struct Edge {
    KindSetId kinds;
    std::uint32_t target;
  };
  struct State {
    bool accepting = false;
    std::vector<Edge> edges;  ///< to different targets; kinds on no edge lead nowhere
  };
  std::vector<State> states;
};

/// Returns false if there are more than `most` states. With `stop`, accepting states get no edges.
bool determinize(const Nfa& nfa, const Alphabet& alphabet, KindSets* sets, std::uint32_t most, bool stop,
                 Deterministic* out);

}  // namespace aici::regex
