#include "determinize.hpp"

#include "aici/detail/hash_index.hpp"
#include "subset.hpp"

namespace aici::regex {
namespace {

class Numbering {
 public:
  /// Returns the number of a set; a new set gets the next number.
  std::uint32_t number(const StateSet& set) {
    Hasher hash;
    for (const NfaId id : set) hash.add(id);
    const std::uint32_t known = ids_.find(hash.bits(), [&](std::uint32_t i) { return sets_[i] == set; });
    if (known != HashIndex::kNone) return known;
    sets_.push_back(set);
    ids_.insert(hash.bits(), static_cast<std::uint32_t>(sets_.size() - 1));
    return static_cast<std::uint32_t>(sets_.size() - 1);
  }
  const std::vector<StateSet>& sets() const { return sets_; }

 private:
  std::vector<StateSet> sets_;
  HashIndex ids_;
};

}  // namespace

bool determinize(const Nfa& nfa, const Alphabet& alphabet, KindSets* sets, std::uint32_t most, bool stop,
                 Deterministic* out) {
  constexpr std::uint32_t kUnknown = 0xffffffff;
  SubsetStepper stepper(&nfa, sets, alphabet.size(), false);
  Numbering numbering;
  numbering.number(stepper.start());
  for (std::uint32_t at = 0; at < numbering.sets().size(); at++) {
    if (numbering.sets().size() > most) return false;
    const StateSet set = numbering.sets()[at];
    Deterministic::State& state = out->states.emplace_back();
    state.accepting = accepts(set);
    if (state.accepting && stop) continue;

    stepper.partition(set);
    std::vector<std::uint32_t> target_of(stepper.num_groups(), kUnknown);
    std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> edges;  // target, bits of kinds
    for (std::uint32_t kind = 1; kind < alphabet.size(); kind++) {
      const std::uint32_t group = stepper.group(kind);
      if (group == 0) continue;
      if (target_of[group] == kUnknown) {
        const StateSet& target = stepper.target(group);
        if (target.empty()) {
          target_of[group] = kUnknown - 1;
        } else {
          target_of[group] = numbering.number(target);
        }
      }
      if (target_of[group] == kUnknown - 1) continue;
      std::size_t edge = 0;
      while (edge < edges.size() && edges[edge].first != target_of[group]) edge++;
      if (edge == edges.size())
        edges.push_back({target_of[group], std::vector<std::uint32_t>(alphabet.words())});
      edges[edge].second[kind / 32] |= 1u << (kind % 32);
    }
    for (const auto& [target, kinds] : edges) state.edges.push_back({sets->add(kinds), target});
  }
  return true;
}

}  // namespace aici::regex
