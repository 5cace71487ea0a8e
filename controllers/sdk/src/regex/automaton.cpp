#include "aici/regex/automaton.hpp"

#include <algorithm>

#include "sort.hpp"
#include "subset.hpp"

namespace aici::regex {
namespace {

constexpr std::uint32_t kNodeBits = 14;
static_assert(1u << kNodeBits == Alphabet::kMostNodes);

}  // namespace

Automaton::Automaton(std::unique_ptr<Program> program, const Limits& limits)
    : program_(std::move(program)),
      limits_(limits),
      stepper_(std::make_unique<SubsetStepper>(&program_->nfa, &program_->sets, program_->alphabet.size())),
      stride_(kHeaderWords + program_->alphabet.dense()) {
  for (std::uint32_t b = 0; b < 256; b++)
    slot_[b] = b < 0x80 ? static_cast<std::uint8_t>(kHeaderWords + program_->alphabet.ascii(static_cast<std::uint8_t>(b)))
                        : std::uint8_t{kBeyondAscii};
  start_over();
  const StateSet start = stepper_->start();
  if (!start.empty()) initial_ = intern(start);
}

Automaton::~Automaton() = default;

void Automaton::start_over() {
  ids_.clear();
  arena_.clear();
  runs_.assign(1, {kLastKind, kDead});
  rows_.assign(1, kDead);
  table_.assign(stride_, kDead);  // the dead row
}

std::size_t Automaton::bytes() const {
  return table_.size() * sizeof(State) + rows_.size() * sizeof(State) + arena_.size() * sizeof(NfaId) +
         runs_.size() * sizeof(Run) + ids_.bytes();
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
  if (bytes() > limits_.automaton_bytes || rows_.size() >= kMostRows) {
    exhausted_ = true;
    return kDead;
  }
  const auto row = static_cast<State>(table_.size());
  table_.resize(table_.size() + stride_, kUnknown);
  const auto number = static_cast<std::uint32_t>(rows_.size());
  table_[row + kFlags] = number | (set.front() == Nfa::kMatch ? kAccepting : 0);
  table_[row + kSet] = static_cast<std::uint32_t>(arena_.size());
  arena_.push_back(static_cast<NfaId>(set.size()));
  regex::append(&arena_, set);
  rows_.push_back(row);
  ids_.insert(hash, row);
  return row;
}

void Automaton::build(State row) {
  // The set is copied: new rows may move the arena.
  const auto set = set_of(row);
  stepper_->partition(std::vector<NfaId>(set.begin(), set.end()));
  group_target_.assign(stepper_->num_groups(), kUnknown);
  group_target_[0] = kDead;
  const std::uint32_t dense = program_->alphabet.dense();
  std::vector<Run> runs;
  std::uint32_t live = 0;
  for (std::uint32_t kind = 0; kind < program_->alphabet.size(); kind++) {
    State& target = group_target_[stepper_->group(kind)];
    if (target == kUnknown) {
      const StateSet& next = stepper_->target(stepper_->group(kind));
      target = next.empty() ? kDead : intern(next);
    }
    if (target != kDead) live |= Alphabet::kind_bit(kind);
    if (kind < dense)
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
  if (state >= kInside) {
    const State row = rows_[state >> kNodeBits & kRowMask];
    return inside(row, program_->alphabet.step(state & (Alphabet::kMostNodes - 1), byte));
  }
  if (!built(state)) build(state);
  return byte < 0x80 ? table_[state + slot_[byte]] : inside(state, program_->alphabet.lead(byte));
}

/// The state after the bytes of a character that began at `row` have led the decoder by `step`.
Automaton::State Automaton::inside(State row, Alphabet::Step step) {
  if (!(step & Alphabet::kNode)) return next_by_kind(row, step);
  const std::uint32_t node = step & (Alphabet::kMostNodes - 1);
  const std::uint32_t live = table_[row + kLive] & program_->alphabet.kind_bits_below(node);
  if (live == 0 || (live == 1u << 31 && !can_take_any(row, node))) return kDead;
  return kInside | (table_[row + kFlags] & kRowMask) << kNodeBits | node;
}

Automaton::State Automaton::next_by_kind(State row, std::uint32_t kind) const {
  if (kind < program_->alphabet.dense()) return table_[row + kHeaderWords + kind];
  const Run* run = &runs_[table_[row + kRuns]];
  while ((run + 1)->kind <= kind) run++;
  return run->target;
}

/// Does a character below the decoder's node lead anywhere from `row`?
bool Automaton::can_take_any(State row, std::uint32_t node) const {
  const std::uint32_t dense = program_->alphabet.dense();
  const auto kinds = program_->alphabet.kinds_below(node);
  auto kind = kinds.begin();
  for (; kind != kinds.end() && *kind < dense; ++kind)
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

bool Automaton::compact(State* state) {
  if (bytes() <= limits_.kept_bytes && !exhausted_) return false;
  const bool within = *state >= kInside;
  const State row = within ? rows_[*state >> kNodeBits & kRowMask] : *state;
  std::vector<NfaId> set;
  if (row != kDead) regex::append(&set, set_of(row));
  start_over();
  exhausted_ = false;
  initial_ = intern(stepper_->start());
  const State kept = set.empty() ? kDead : intern(set);
  if (within && kept != kDead) {
    build(kept);  // states inside characters look at the row before them
    *state = kInside | (table_[kept + kFlags] & kRowMask) << kNodeBits | (*state & (Alphabet::kMostNodes - 1));
  } else {
    *state = kept;
  }
  return true;
}

}  // namespace aici::regex
