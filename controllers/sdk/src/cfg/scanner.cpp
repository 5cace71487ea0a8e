#include "aici/detail/cfg/scanner.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace aici::cfg {

Scanner::Scanner(Terminals* terminals) : terminals_(terminals) {
  // Reserved memory that is not written costs nothing; a table that moves is written again, page by page. Blocks this
  // large leave the heap's first chunk to others: while it lasts, guests of all grammars have memories of one size, so
  // that a spare one can take any other's place.
  table_.reserve(kUsual << 8), rows_.reserve(2 * kUsual), parts_.reserve(kUsual);
  rows_.push_back({0, 0, 0, 0, 0, false, false});
  table_.assign(256, kDead);
  notes_.reserve(kUsual);
  notes_.push_back(0);
}

Scanner::State Scanner::intern(bool fresh, std::span<const Part> parts, std::span<const Terminal> accepted,
                               std::uint32_t guard) {
  Hasher hash;
  hash.add(fresh | guard << 1);
  for (const Part& part : parts) hash.add(part.terminal), hash.add(part.state);
  for (const Terminal terminal : accepted) hash.add(~terminal);
  const auto same = [&](std::uint32_t i) {
    const Row& row = rows_[i];
    return row.fresh == fresh && row.guard == guard && std::ranges::equal(this->parts(i), parts) &&
           std::ranges::equal(this->accepted(i), accepted);
  };
  if (const std::uint32_t known = ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  if (rows_.size() >= kMax) {
    full_ = true;
    return kDead;
  }
  const auto state = static_cast<State>(rows_.size());
  const bool longest = !accepted.empty() ? terminals_->longest(accepted.front())
                                         : !parts.empty() && terminals_->longest(parts.front().terminal);
  rows_.push_back({static_cast<std::uint32_t>(parts_.size()), static_cast<std::uint32_t>(parts.size()),
                   static_cast<std::uint32_t>(accepted_.size()), static_cast<std::uint32_t>(accepted.size()),
                   guard, fresh, longest});
  parts_.insert(parts_.end(), parts.begin(), parts.end());
  accepted_.insert(accepted_.end(), accepted.begin(), accepted.end());
  table_.insert(table_.end(), 256, kUnknown);
  notes_.push_back(0);
  ids_.insert(hash.bits(), state);
  return state;
}

Scanner::State Scanner::start(std::span<const Terminal> terminals) {
  next_.clear();
  for (const Terminal terminal : terminals) next_.push_back({terminal, terminals_->initial(terminal)});
  return intern(true, next_, {});
}

std::uint32_t Scanner::intern_guard() {
  std::ranges::sort(next_guard_);
  next_guard_.erase(std::unique(next_guard_.begin(), next_guard_.end()), next_guard_.end());
  if (next_guard_.empty()) return 0;
  Hasher hash;
  for (const Part& part : next_guard_) hash.add(part.terminal), hash.add(part.state);
  const auto same = [&](std::uint32_t i) { return guards_[i] == next_guard_; };
  if (const std::uint32_t known = guard_ids_.find(hash.bits(), same); known != HashIndex::kNone) return known;
  const auto guard = static_cast<std::uint32_t>(guards_.size());
  guard_parts_ += next_guard_.size();
  full_ = full_ || guard_parts_ > kMaxGuardParts;
  guards_.push_back(next_guard_);
  guard_ids_.insert(hash.bits(), guard);
  return guard;
}

Scanner::State Scanner::follow(State fresh, State before) {
  next_guard_ = guards_[rows_[before].guard];
  if (longest(before)) next_guard_.insert(next_guard_.end(), parts(before).begin(), parts(before).end());
  return with_guard(fresh, intern_guard());
}

Scanner::State Scanner::with_guard(State state, std::uint32_t guard) {
  if (rows_[state].guard == guard) return state;
  next_.assign(parts(state).begin(), parts(state).end());
  next_accepted_.assign(accepted(state).begin(), accepted(state).end());
  return intern(fresh(state), next_, next_accepted_, guard);
}

/// Fills in a row as far as it is easy: most bytes cannot follow within a name or a number. Where known names differ from
/// an unknown one, its row has the same states for all other bytes.
void Scanner::narrow(State state) {
  ByteSet next, differ;
  for (const Part& part : parts(state)) terminals_->add_next_bytes(part.terminal, part.state, next);
  const State similar = without_names(state, differ);
  std::uint16_t* const row = table_.data() + (state << 8);
  const std::uint16_t* const known = table_.data() + (similar << 8);
  if (similar == kDead && next.is_most()) {
    (~next).for_each([&](std::uint8_t b) { row[b] = kDead; });
  } else {
    std::fill_n(row, 256, std::uint16_t{kDead});
    next.for_each([&](std::uint8_t b) { row[b] = similar != kDead && !differ.has(b) ? known[b] : kUnknown; });
  }
  rows_[state].narrow = true;
  rows_[state].next = next;
}

/// Returns the next guard; nothing if one of the longer lexemes is complete, or there are too many.
std::optional<std::uint32_t> Scanner::step_guard(std::uint32_t guard, std::uint8_t byte) {
  next_guard_.clear();
  for (const auto [terminal, before] : guards_[guard]) {
    const Terminals::State after = terminals_->append(terminal, before, byte);
    if (terminals_->accepting(terminal, after)) return std::nullopt;
    if (!terminals_->ended(terminal, after)) next_guard_.push_back({terminal, after});
  }
  if (next_guard_.size() > kMaxGuard) return std::nullopt;
  return intern_guard();
}

Scanner::State Scanner::append_slowly(State state, std::uint8_t byte) {
  if (!next_bytes(state).has(byte)) return kDead;
  next_.clear(), next_accepted_.clear();
  const Row from = rows_[state];
  for (std::uint32_t i = 0; i < from.count; i++) {
    const Part part = parts_[from.first + i];
    const Terminals::State next = terminals_->append(part.terminal, part.state, byte);
    if (next == Terminals::kDead) continue;
    if (terminals_->accepting(part.terminal, next)) next_accepted_.push_back(part.terminal);
    if (!terminals_->ended(part.terminal, next)) next_.push_back({part.terminal, next});
  }
  const auto early = [&](Terminal terminal) { return terminals_->early(terminal); };
  if (from.longest && std::ranges::any_of(next_accepted_, early)) {
    // the lexeme ends here for all terminals
    std::erase_if(next_accepted_, [&](Terminal terminal) { return !early(terminal); });
    next_.clear();
  }
  State next = kDead;
  const bool lives = !next_.empty() || !next_accepted_.empty();
  if (const auto guard = lives ? step_guard(from.guard, byte) : std::nullopt) {
    next = intern(false, next_, next_accepted_, *guard);
    if (from.longest && from.num_accepted != 0 && next_accepted_.empty() && next != kDead && !overshot(next))
      rows_[next].overshot = true, notes_[next] = 0;
  }
  table_[state << 8 | byte] = static_cast<std::uint16_t>(next);
  return next;
}

bool Scanner::reads(State state, Terminal terminal) const {
  // both are in the order of the terminals
  return std::ranges::binary_search(accepted(state), terminal) ||
         std::ranges::binary_search(parts(state), terminal, {}, &Part::terminal);
}

float Scanner::temperature(State state) const {
  float highest = 0;
  for (const Part& part : parts(state)) {
    const float one = terminals_->temperature(part.terminal);
    if (one != 0 && (highest == 0 || one > highest)) highest = one;
  }
  return highest;
}

Scanner::State Scanner::silent(State state) {
  if (!accepting(state)) return state;
  next_.assign(parts(state).begin(), parts(state).end());
  return intern(false, next_, {}, rows_[state].guard);
}

Scanner::State Scanner::without_names(State state, ByteSet& differ) {
  const Row row = rows_[state];
  if (row.longest || accepting(state) || guarded(state)) return kDead;
  next_.clear();
  bool unknown = false;
  for (std::uint32_t i = 0; i < row.count; i++) {
    const Part part = parts_[row.first + i];
    const Terminals::State next = terminals_->without_names(part.terminal, part.state, differ);
    if (next == Terminals::kDead) continue;
    unknown = unknown || next != part.state;
    next_.push_back({part.terminal, next});
  }
  return unknown ? intern(false, next_, {}) : kDead;
}

Scanner::State Scanner::twin(State state, std::uint32_t* length) {
  constexpr std::uint32_t kMinAtStart = 16, kMin = 2;
  const Row row = rows_[state];
  if (row.count != 1 || row.longest || accepting(state) || guarded(state)) return state;
  const Part part = parts_[row.first];
  const Terminals::Place twin = terminals_->twin({part.terminal, part.state}, length);
  // few tokens begin a terminal, or have one character: a walk finds those faster
  if (twin.terminal == part.terminal || *length < (row.fresh ? kMinAtStart : kMin)) return state;
  const Part made{twin.terminal, twin.state};
  return intern(row.fresh, {&made, 1}, {});
}

void Scanner::find_loop(State state) {
  Row& row = rows_[state];
  row.has_loop = true;
  if (guarded(state)) return;
  const auto parts = this->parts(state);
  // a terminal that ends early may end the others
  if (row.longest && std::ranges::any_of(parts, [&](const Part& it) { return terminals_->early(it.terminal); })) return;
  for (std::uint32_t i = 0; i < row.count; i++) {
    const Part part = parts_[row.first + i];
    std::uint32_t length = kUnlimited;
    const Signature found = terminals_->loop_signature(part.terminal, part.state, &length);
    if (std::popcount(found) > std::popcount(row.loop)) row.loop = found, row.loop_length = length;
    const Signature multibyte = terminals_->multibyte_signature(part.terminal, part.state);
    if (std::popcount(multibyte) > std::popcount(row.multibyte)) row.multibyte = multibyte;
  }
}

void Scanner::keep_only(std::span<State> kept) {
  Scanner fresh(terminals_);
  for (State& state : kept) {
    if (state == kDead) continue;
    fresh.next_guard_ = guards_[rows_[state].guard];
    state = fresh.intern(rows_[state].fresh, parts(state), accepted(state), fresh.intern_guard());
  }
  *this = std::move(fresh);
}

}  // namespace aici::cfg
