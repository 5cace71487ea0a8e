#include "subset.hpp"

#include <algorithm>

#include "../sort.hpp"

namespace aici::regex {

using Op = NfaState::Op;

void SubsetStepper::follow(NfaId state) {
  stack_.push_back(state);
  while (!stack_.empty()) {
    const NfaId id = stack_.back();
    stack_.pop_back();
    if (marks_[id] == walk_ || !nfa_->live[id]) continue;
    marks_[id] = walk_;
    const NfaState& s = nfa_->states[id];
    if (s.op == Op::kSplit) {
      stack_.push_back(s.alt);
      stack_.push_back(s.out);
    } else {
      out_.push_back(id);
    }
  }
}

const StateSet& SubsetStepper::finish() {
  if (!ordered_)
    sort_small(&out_);
  else if (const auto match = std::find(out_.begin(), out_.end(), Nfa::kMatch); match != out_.end())
    out_.erase(match + 1, out_.end());
  return out_;
}

StateSet SubsetStepper::start() {
  walk_++;
  out_.clear();
  follow(nfa_->start);
  return finish();
}

bool SubsetStepper::repeats(NfaId state) {
  walk_++;
  out_.clear();
  follow(nfa_->states[state].out);
  return marks_[state] == walk_;
}

void SubsetStepper::partition(std::span<const NfaId> set) {
  std::fill(group_.begin(), group_.end(), 0u);
  parts_.assign(1, {0, 0});
  for (const NfaId id : set) {
    const NfaState& state = nfa_->states[id];
    if (state.op != Op::kKinds) continue;
    moved_.assign(parts_.size(), 0);
    sets_->each(state.kinds, [&](std::uint32_t kind) {
      const std::uint32_t from = group_[kind];
      if (!moved_[from]) {
        moved_[from] = static_cast<std::uint32_t>(parts_.size());
        parts_.push_back({from, state.out});
      }
      group_[kind] = moved_[from];
    });
  }
}

const StateSet& SubsetStepper::target(std::uint32_t group) {
  walk_++;
  out_.clear();
  if (!ordered_) {
    for (std::uint32_t g = group; g != 0; g = parts_[g].parent) follow(parts_[g].next);
    return finish();
  }
  std::vector<NfaId> chain;
  for (std::uint32_t g = group; g != 0; g = parts_[g].parent) chain.push_back(parts_[g].next);
  for (std::size_t i = chain.size(); i-- > 0;) follow(chain[i]);
  return finish();
}

}  // namespace aici::regex
