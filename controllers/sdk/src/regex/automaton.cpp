#include "aici/detail/regex/automaton.hpp"

#include <algorithm>
#include <array>
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

// Computes loop_signature: the kinds of bytes that can follow a state in any number and order.
//
// The search is for a set of states and a set of signature bits, such that every character with these bits leads from
// each of the states to one of them. Then all strings of such characters are allowed. Many such pairs exist. If
// characters lead to a state outside the set, either the state is added, which may cost bits that it does not allow,
// or the characters are excluded, whichever costs less. A state need not be added if it covers one in the set: if its
// nondeterministic states include all of the other's, it allows everything that the other allows.

namespace {

/// The weight of a bit: roughly, the number of tokens with one of its bytes.
constexpr std::uint8_t kLetterWeight = 10, kDigitWeight = 3, kOtherWeight = 1, kUtf8Weight = 40;

}  // namespace

std::span<const std::uint32_t> Automaton::leave_out_rare() {
  if (!leaves_out_rare_) {
    rare_ = program_->alphabet.rare();
    leaves_out_rare_ = true;
    byte_classes_ = nullptr;
  }
  return rare_.characters;
}

/// Calls visit(target) for the runs with a kind that is not left out.
template <class Visit>
void Automaton::each_run(State row, Visit visit) const {
  for (std::uint32_t run = table_[row + kRuns]; runs_[run].kind != kLastKind; run++) {
    const std::uint32_t end = std::min(runs_[run + 1].kind, program_->alphabet.size());
    std::uint32_t kind = runs_[run].kind;
    while (kind < end && is_rare(kind)) kind++;
    if (kind < end) visit(runs_[run].target);
  }
}

void Automaton::set_byte_classes(ByteClasses classes) {
  if (classes.of == byte_classes_) return;
  byte_classes_ = classes.of;
  const Alphabet& alphabet = program_->alphabet;
  kind_bits_.assign(alphabet.dense(), 0);
  for (std::uint32_t kind = 0; kind < alphabet.dense(); kind++)
    if (alphabet.beyond_ascii(static_cast<Kind>(kind)) && !is_rare(kind)) kind_bits_[kind] = kWellFormedUtf8;
  std::fill(bit_weight_, bit_weight_ + 32, std::uint8_t{0});
  bit_weight_[30] = kUtf8Weight;
  known_bits_ = kWellFormedUtf8;
  for (std::uint32_t b = 0; b < 0x80; b++) {
    const std::uint8_t bit = classes.of[b];
    kind_bits_[alphabet.ascii(static_cast<std::uint8_t>(b))] |= 1u << bit;
    known_bits_ |= 1u << bit;
    const bool letter = ((b | 32) >= 'a' && (b | 32) <= 'z') || b == ' ';
    const std::uint8_t weight = letter ? kLetterWeight : b >= '0' && b <= '9' ? kDigitWeight : kOtherWeight;
    bit_weight_[bit] = std::max(bit_weight_[bit], weight);
  }
  for (State row = 0; row < table_.size(); row += stride_) table_[row + kFlags] &= ~kHasLoop;
}

std::uint32_t Automaton::weight(Signature bits) const {
  std::uint32_t sum = 0;
  for (; bits; bits &= bits - 1) sum += bit_weight_[__builtin_ctz(bits)];
  return sum;
}

/// Calls visit(bits, target) for groups of characters that have these bits and lead to this row.
template <class Visit>
void Automaton::each_transition(State row, Visit visit) {
  if (!built(row)) build(row);
  // first all of them, since `visit` may build rows and move the table; most rows have few targets
  struct Group {
    State target;
    Signature bits;
  };
  std::array<Group, 8> groups;
  std::size_t size = 0;
  std::vector<Group> more;
  const auto add = [&](Signature bits, State target) {
    for (std::size_t i = 0; i < size; i++)
      if (groups[i].target == target) {
        groups[i].bits |= bits;
        return;
      }
    if (size < groups.size())
      groups[size++] = {target, bits};
    else
      more.push_back({target, bits});
  };
  const std::uint32_t dense = program_->alphabet.dense();
  for (std::uint32_t kind = 0; kind < dense; kind++) add(kind_bits_[kind], table_[row + kHeaderWords + kind]);
  each_run(row, [&](State target) { add(kWellFormedUtf8, target); });
  for (std::size_t i = 0; i < size; i++) visit(groups[i].bits, groups[i].target);
  for (const Group& group : more) visit(group.bits, group.target);
}

bool Automaton::covered(State row, const std::vector<State>& home) const {
  const auto set = set_of(row);
  return std::any_of(home.begin(), home.end(), [&](State other) {
    const auto part = set_of(other);
    if (row == other) return true;
    if (program_->ordered) return false;
    // most sets of states that count have other bounds
    if (part.size() > set.size() || part.front() < set.front() || part.back() > set.back()) return false;
    return std::includes(set.begin(), set.end(), part.begin(), part.end());
  });
}

Signature Automaton::allowed_bits(State row) {
  if (!built(row)) build(row);
  Signature allowed = known_bits_;
  const std::uint32_t dense = program_->alphabet.dense();
  for (std::uint32_t kind = 0; kind < dense; kind++)
    if (table_[row + kHeaderWords + kind] == kDead) allowed &= ~kind_bits_[kind];
  each_run(row, [&](State target) {
    if (target == kDead) allowed &= ~kWellFormedUtf8;
  });
  return allowed;
}

Signature Automaton::find_closed(State row, std::size_t most_states) {
  Signature inside = allowed_bits(row);
  std::vector<State> home{row};
  for (std::size_t i = 0; i < home.size() && inside; i++) {
    inside &= allowed_bits(home[i]);
    each_transition(home[i], [&](Signature bits, State target) {
      bits &= inside;
      if (!bits || covered(target, home)) return;
      if (home.size() < most_states) {
        const Signature kept = inside & allowed_bits(target);
        if (weight(inside & ~kept) < weight(bits)) {
          home.push_back(target);
          inside = kept;
          return;
        }
      }
      inside &= ~bits;
    });
  }
  return inside;
}

/// Returns the bits of one nondeterministic state that leads to itself. It stays, whatever else is in the set.
Signature Automaton::find_repeating(State row) {
  const Alphabet& alphabet = program_->alphabet;
  repeats_.resize(program_->nfa.states.size(), -1);
  Signature best = 0;
  if (program_->ordered) return best;  // it does not stay where a preferred match ends
  for (const NfaId id : set_of(row)) {
    const NfaState& state = program_->nfa.states[id];
    if (state.op != NfaState::Op::kKinds) continue;
    if (repeats_[id] < 0) repeats_[id] = stepper_->repeats(id);
    if (repeats_[id] == 0) continue;
    const auto kinds = program_->sets[state.kinds];
    Signature bits = known_bits_;
    for (std::uint32_t kind = 0; kind < alphabet.size() && bits; kind++)
      if (!(kinds[kind / 32] >> (kind % 32) & 1))
        bits &= ~(kind < alphabet.dense() ? kind_bits_[kind] : is_rare(kind) ? 0 : kWellFormedUtf8);
    if (weight(bits) > weight(best)) best = bits;
  }
  return best;
}

/// Returns bits that hold for a bounded number of characters, as after `.{0,50}`. Searches the states level by level.
Signature Automaton::find_bounded(State row, std::uint32_t* length, Levels& levels) {
  constexpr std::uint32_t kMaxLevels = 40;  // few tokens are longer
  constexpr std::size_t kMaxStates = 160;
  constexpr std::uint32_t kShort = 8;
  Signature inside = allowed_bits(row);
  std::vector<State>& home = levels.states;
  home.push_back(row);
  std::size_t next = 0;
  for (std::uint32_t level = 1; next < home.size() && inside; level++) {
    bool end = level == kMaxLevels;
    levels.first.push_back(next);
    for (const std::size_t last = home.size(); next < last; next++) {
      each_transition(home[next], [&](Signature bits, State target) {
        bits &= inside;
        if (!bits || end || covered(target, home)) return;
        const Signature kept = inside & allowed_bits(target);
        const std::uint32_t lost = weight(inside & ~kept), given_up = weight(bits);
        // At first, much may be lost in exchange for length; later, little.
        const std::uint32_t lose_at_most = weight(inside) * (level < kShort ? 3 : 1) / 4;
        if (home.size() == kMaxStates || std::min(lost, given_up) > lose_at_most) {
          end = true;
        } else if (lost <= given_up) {
          home.push_back(target);
          inside = kept;
        } else {
          inside &= ~bits;
        }
      });
    }
    if (end) {
      *length = level;
      return inside;
    }
  }
  *length = kUnlimited;
  return inside;
}

/// Fills in kLoop and kLoopLength. Without byte classes, or for the dead state, kLoop is 0.
void Automaton::find_loop(State state) {
  set_loop(state, 0, kUnlimited);
  if (state == kDead || kind_bits_.empty()) return;
  // With few states, more characters are excluded at once. With many, one of them may allow little.
  constexpr std::size_t kTries[] = {1, 2, 12};
  Signature best = find_repeating(state);
  std::uint32_t length = kUnlimited;
  const std::uint32_t most = weight(allowed_bits(state));
  for (const std::size_t most_states : kTries) {
    if (weight(best) == most) break;
    const Signature found = find_closed(state, most_states);
    if (weight(found) > weight(best)) best = found;
  }
  if (weight(best) * 2 < most) {
    // A longer length is worth nothing more, since few tokens exceed it.
    constexpr std::uint32_t kWorth = 32;
    Levels levels;
    std::uint32_t found_length = 0;
    const Signature found = find_bounded(state, &found_length, levels);
    if (weight(found) * std::min(found_length, kWorth) > weight(best) * kWorth) {
      best = found, length = found_length;
      share_loop(levels, found, found_length);
    }
  }
  set_loop(state, best, length);
}

void Automaton::set_loop(State state, Signature bits, std::uint32_t length) {
  table_[state + kLoop] = bits;
  table_[state + kLoopLength] = length;
  table_[state + kFlags] |= kHasLoop;
}

/// Fills in the loops of states on later levels: what holds for some characters holds for fewer of them from there.
/// A search from each of these states would find hardly more, unless they allow more or are near the end.
void Automaton::share_loop(const Levels& levels, Signature bits, std::uint32_t length) {
  constexpr std::uint32_t kMin = 16;  // many tokens are longer than less
  for (std::uint32_t level = 1; level < levels.first.size() && length >= level + kMin; level++) {
    const std::size_t end = level + 1 < levels.first.size() ? levels.first[level + 1] : levels.states.size();
    for (std::size_t i = levels.first[level]; i < end; i++) {
      const State state = levels.states[i];
      if (!(table_[state + kFlags] & kHasLoop) && weight(bits) * 4 >= weight(allowed_bits(state)) * 3)
        set_loop(state, bits, length - level);
    }
  }
}

}  // namespace aici::regex
