#include "aici/detail/regex/automaton.hpp"

#include <algorithm>
#include <utility>

#include "passes.hpp"
#include "sort.hpp"

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

Automaton::Automaton(std::unique_ptr<Program> program, const Limits& limits)
    : program_(std::move(program)),
      limits_(limits),
      stepper_(std::make_unique<SubsetStepper>(&program_->nfa, &program_->sets, program_->alphabet.size(), program_->ordered)),
      steps_(program_->alphabet.steps()),
      kind_bits_below_(program_->alphabet.kind_bits_below()),
      num_dense_(program_->alphabet.dense()),
      stride_(kHeaderWords + num_dense_),
      ascii_bytes_(num_dense_) {
  for (std::uint32_t b = 0; b < 256; b++) {
    const Kind kind = b < 0x80 ? program_->alphabet.ascii(static_cast<std::uint8_t>(b)) : Kind{0};
    slot_[b] = static_cast<std::uint8_t>(b < 0x80 ? kHeaderWords + kind : kBeyondAscii);
    if (b < 0x80) ascii_bytes_[kind].add(static_cast<std::uint8_t>(b));
  }
  for (std::uint32_t kind = 0; kind < program_->alphabet.size(); kind++)
    if (kind >= num_dense_ || program_->alphabet.beyond_ascii(static_cast<Kind>(kind)))
      live_beyond_ascii_ |= Alphabet::kind_bit(kind);
  start_over();
  const StateSet start = stepper_->start();
  if (!start.empty()) initial_ = intern(start);
}

Automaton::~Automaton() = default;

void Automaton::start_over() {
  ids_.clear();
  arena_.clear();
  runs_.assign(1, {kLastKind, kDead});
  table_.assign(stride_, kDead);  // the dead row
}

std::size_t Automaton::bytes() const {
  return table_.size() * sizeof(State) + arena_.size() * sizeof(NfaId) + runs_.size() * sizeof(Run) +
         ids_.bytes();
}

Automaton::State Automaton::intern(std::span<const NfaId> set) {
  Hasher hash;
  for (const NfaId id : set) hash.add(id);
  const State known = ids_.find(hash.bits(), [&](State row) {
    const auto other = set_of(row);
    return std::equal(set.begin(), set.end(), other.begin(), other.end());
  });
  return known != HashIndex::kNone ? known : add_row(set, hash.bits());
}

Automaton::State Automaton::add_row(std::span<const NfaId> set, std::uint32_t hash) {
  if (bytes() > limits_.automaton_bytes || num_states() >= kMaxRows) {
    exhausted_ = true;
    return kDead;
  }
  const auto row = static_cast<State>(table_.size());
  table_.resize(table_.size() + stride_, kUnknown);
  table_[row + kFlags] = row / stride_ | (accepts(set) ? kAccepting : 0);
  table_[row + kSet] = static_cast<std::uint32_t>(arena_.size());
  arena_.push_back(static_cast<NfaId>(set.size()));
  regex::append(&arena_, set);
  ids_.insert(hash, row);
  return row;
}

void Automaton::build(State row) {
  // The set is copied, since new rows may move the arena.
  const auto set = set_of(row);
  stepper_->partition(std::vector<NfaId>(set.begin(), set.end()));
  group_target_.assign(stepper_->num_groups(), kUnknown);
  group_target_[0] = kDead;
  std::vector<Run> runs;
  std::uint32_t live = 0;
  for (std::uint32_t kind = 0; kind < program_->alphabet.size(); kind++) {
    State& target = group_target_[stepper_->group(kind)];
    if (target == kUnknown) {
      const StateSet& next = stepper_->target(stepper_->group(kind));
      target = next.empty() ? kDead : intern(next);
    }
    if (target != kDead) live |= Alphabet::kind_bit(kind);
    if (kind < num_dense_)
      table_[row + kHeaderWords + kind] = target;
    else if (runs.empty() || runs.back().target != target)
      runs.push_back({kind, target});
  }
  runs.push_back({kLastKind, kDead});
  table_[row + kLive] = live;
  table_[row + kRuns] = static_cast<std::uint32_t>(runs_.size());
  for (const Run& run : runs) runs_.push_back(run);
}

Automaton::State Automaton::append_slowly(State state, std::uint8_t byte) {
  if (!built(state)) build(state);
  if (byte < 0x80) return table_[state + slot_[byte]];
  const State prefix = kInside | (table_[state + kFlags] & kRowMask) << kNodeBits;
  return inside(state, prefix, program_->alphabet.leads()[byte]);
}

Automaton::State Automaton::next_by_kind(State row, std::uint32_t kind) const {
  const Run* run = &runs_[table_[row + kRuns]];
  while ((run + 1)->kind <= kind) run++;
  return run->target;
}

/// Returns whether a character below the decoder's node leads anywhere from `row`.
bool Automaton::can_take_any(State row, std::uint32_t node) const {
  const auto kinds = program_->alphabet.kinds_below(node);
  auto kind = kinds.begin();
  for (; kind != kinds.end() && *kind < num_dense_; ++kind)
    if (table_[row + kHeaderWords + *kind] != kDead) return true;
  for (const Run* run = &runs_[table_[row + kRuns]]; run->kind != kLastKind && kind != kinds.end(); run++) {
    kind = std::lower_bound(kind, kinds.end(), run->kind);
    if (run->target != kDead && kind != kinds.end() && *kind < (run + 1)->kind) return true;
  }
  return false;
}

bool Automaton::forced_byte(State state, std::uint8_t* byte) {
  if (accepting(state)) return false;
  bool found = false;
  for (std::uint32_t b = 0; b < 256; b++) {
    if (append(state, static_cast<std::uint8_t>(b)) == kDead) continue;
    if (found) return false;
    found = true;
    *byte = static_cast<std::uint8_t>(b);
  }
  return found;
}

void Automaton::add_next_bytes(State state, ByteSet& bytes) {
  if (state >= kInside) return bytes.add_beyond_ascii();
  if (!built(state)) build(state);
  for (std::uint32_t kind = 0; kind < num_dense_; kind++)
    if (table_[state + kHeaderWords + kind] != kDead) bytes.add(ascii_bytes_[kind]);
  if ((table_[state + kLive] & live_beyond_ascii_) != 0) bytes.add_beyond_ascii();
}

bool Automaton::compact(State* state) {
  if (bytes() <= limits_.kept_bytes && !exhausted_) return false;
  const bool within = *state >= kInside;
  const State row = within ? (*state >> kNodeBits & kRowMask) * stride_ : *state;
  std::vector<NfaId> set;
  if (row != kDead) regex::append(&set, set_of(row));
  start_over();
  exhausted_ = false;
  initial_ = intern(stepper_->start());
  const State kept = set.empty() ? kDead : intern(set);
  if (within && kept != kDead) {
    build(kept);  // states inside characters use the row before them
    *state = kInside | (table_[kept + kFlags] & kRowMask) << kNodeBits | (*state & kNodeMask);
  } else {
    *state = kept;
  }
  return true;
}

namespace {

/// Sets of states with their numbers.
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
